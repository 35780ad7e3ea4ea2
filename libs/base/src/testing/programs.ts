import { fileURLToPath } from "node:url";

type App = "cli" | "master" | "parameter-server" | "trainer" | "worker";

const pathOf = (path: string) => fileURLToPath(new URL(`../../../../${path}`, import.meta.url));

/** The program of an app as clusters run it; `tools/programs.mjs` writes it before every test run. */
export function programOf(app: App): string {
  return pathOf(`packaged/apps/${app}/dist/main.js`);
}

/** Node's arguments for a program that is an app's with scripted parts; bundled by the same tool. */
const scripted = (path: string) => [pathOf(`node_modules/.cache/heddle-test-programs/${path}`)];
export const SCRIPTED_MASTER: readonly string[] = scripted("apps/master/test/scripted-main.js");
export const SCRIPTED_WORKER: readonly string[] = scripted("apps/worker/test/scripted-worker.js");
