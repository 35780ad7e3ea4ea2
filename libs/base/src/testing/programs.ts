import { fileURLToPath } from "node:url";

type App = "cli" | "master" | "parameter-server" | "trainer" | "worker";

/** The program of an app as clusters run it; `tools/programs.mjs` writes it before every test run. */
export function programOf(app: App): string {
  return fileURLToPath(new URL(`../../../../packaged/apps/${app}/dist/main.js`, import.meta.url));
}
