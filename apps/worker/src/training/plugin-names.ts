import { toAppError } from "@heddle/base/errors";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import { algorithmSchemas } from "./algorithm-schemas.ts";
import { loadPlugins } from "./load-plugins.ts";

// A process that says what plugins have, for a worker that must not load them itself: one line of
// JSON at the end of standard output, or the reason on standard error.

try {
  const { algorithms, environments } = await loadPlugins(process.argv.slice(2));
  const added = [...environments.keys()].filter((name) => !ENVIRONMENTS.has(name));
  const told = { algorithms: [...algorithms.keys()], environments: added };
  const names = { ...told, ...algorithmSchemas(algorithms) };
  process.stdout.write(`${JSON.stringify(names)}\n`);
} catch (error) {
  process.stderr.write(`${toAppError(error).message}\n`);
  process.exitCode = 1;
}
