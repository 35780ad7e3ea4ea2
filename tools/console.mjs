// Builds the web console with Vite from its sources and the compiled libraries.
import { globSync } from "node:fs";
import { join } from "node:path";

const APP = "apps/console";
/** Below the root: the console as masters serve it. */
export const SITE = `${APP}/dist/site`;
const INPUTS = [
  `${APP}/{index.html,package.json,vite.config.mjs}`,
  `${APP}/src/**/*`,
  "libs/{auth,base,client,contracts,event-store}/dist/**/*.js",
];

/** What the console is built from, as paths from the root. */
export function consoleInputs(root) {
  const paths = globSync(INPUTS, { cwd: root }).map((path) => path.replaceAll("\\", "/"));
  return [...paths.filter((path) => !/\.test\.ts$/.test(path)).sort(), "tools/console.mjs"];
}

/** The files of the console, and the modules that are in them. */
export async function bundleConsole(root) {
  const { build } = await import("vite");
  const { NODE_ENV } = process.env;
  // Tests build it too, in whose environment libraries are those of development.
  process.env.NODE_ENV = "production";
  const configFile = join(root, APP, "vite.config.mjs");
  const building = build({ configFile, logLevel: "warn", build: { write: false } });
  const { output } = await building.finally(() => restoreEnvironment(NODE_ENV));
  return {
    files: output.map((each) => ({ path: each.fileName, code: each.code ?? each.source })),
    modules: output.flatMap(({ moduleIds }) => moduleIds ?? []),
  };
}

function restoreEnvironment(value) {
  if (value === undefined) delete process.env.NODE_ENV;
  else process.env.NODE_ENV = value;
}
