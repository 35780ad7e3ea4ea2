import { join } from "node:path";
import { run } from "./run.mjs";

/** Its sources are bundled for browsers after the check of their types. */
const CONSOLE = "apps/console";

/** Compiles the packages of all tasks at once: `tsc -b` orders them by their references. */
export async function buildBatch(taskGraph, _inputs, _overrides, { root }) {
  const tasks = Object.values(taskGraph.tasks);
  const folders = tasks.map(({ projectRoot }) => projectRoot);
  const success = await compile(root, folders);
  return Object.fromEntries(tasks.map(({ id }) => [id, { success, terminalOutput: "" }]));
}

export async function build(_options, { root, projectName, projectsConfigurations }) {
  return { success: await compile(root, [projectsConfigurations.projects[projectName].root]) };
}

/** Compiles the packages in the folders, or all where none is given; true where that worked. */
export async function compile(root, folders = []) {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  if ((await run(root, tsc, ["-b", ...folders])) !== 0) return false;
  // Nx requires this file, and what awaits at its top level cannot be required.
  if (folders.includes(CONSOLE)) await (await import("../programs.mjs")).writeConsole();
  return true;
}
