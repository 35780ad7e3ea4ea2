import { readFileSync } from "node:fs";
import { toAppError } from "@heddle/base/errors";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import { createLogger } from "@heddle/observability/logger";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import { algorithmSchemas } from "./algorithm-schemas.ts";
import { loadPlugins } from "./load-plugins.ts";

// Prints what the plugins on standard input add, for a worker that must not load them itself.
// Standard output gets JSON alone; the reason of a failure goes to standard error.

const silent = createLogger({ service: "trainer", level: "silent" });
const print = process.stdout.write.bind(process.stdout);
// Output of plugins belongs to the logs of their jobs; here it would corrupt the answer.
process.stdout.write = () => true;
try {
  const entries = JSON.parse(readFileSync(0, "utf8")) as PluginEntry[];
  const { algorithms, environments } = await loadPlugins(entries, silent);
  const added = [...environments.keys()].filter((name) => !ENVIRONMENTS.has(name));
  const lists = { algorithms: [...algorithms.keys()], environments: added };
  const names = { ...lists, ...algorithmSchemas(algorithms) };
  // Exits once everything is written, whatever timers and sockets plugins have open.
  print(`${JSON.stringify(names)}\n`, () => process.exit(0));
} catch (error) {
  process.stderr.write(`${toAppError(error).message}\n`, () => process.exit(1));
}
