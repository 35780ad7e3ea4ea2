import { fileURLToPath } from "node:url";
import { type ProcessKind, youngGenerationFlags } from "../process/young-generation.ts";

type App = "cli" | "master" | "operator" | "parameter-server" | "trainer" | "worker";

const pathOf = (path: string) => fileURLToPath(new URL(`../../../../${path}`, import.meta.url));

/** The program of an app as clusters run it; `tools/programs.mjs` writes it before every test run. */
export function programOf(app: App): string {
  return pathOf(`packaged/apps/${app}/dist/main.js`);
}

/** Node's arguments for a process of a cluster. */
export function startArguments(kind: ProcessKind): readonly string[] {
  return [...youngGeneration(kind), programOf(kind)];
}

/**
 * The setting of `heddle up`, but for masters: tests' masters live for seconds, and with this
 * setting most of them never collect garbage.
 */
function youngGeneration(kind: ProcessKind): readonly string[] {
  if (kind !== "master") return youngGenerationFlags(kind);
  return ["--min-semi-space-size=64", "--max-semi-space-size=64"];
}

/** The same for a program that is an app's with scripted parts; bundled by the same tool. */
function scripted(kind: ProcessKind, path: string): readonly string[] {
  const program = pathOf(`node_modules/.cache/heddle-test-programs/${path}`);
  return [...youngGeneration(kind), program];
}
export const SCRIPTED_MASTER = scripted("master", "apps/master/test/scripted-main.js");
export const SCRIPTED_WORKER = scripted("worker", "apps/worker/test/scripted-worker.js");
