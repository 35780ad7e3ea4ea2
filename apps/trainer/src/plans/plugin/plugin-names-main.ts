import { toAppError } from "@heddle/base/errors";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import { algorithmSchemas } from "./algorithm-schemas.ts";
import { loadPlugins } from "./load-plugins.ts";

// A process that says what plugins have, for a worker that must not load them itself: JSON alone on
// standard output, or the reason on standard error.

const tell = process.stdout.write.bind(process.stdout);
// What plugins print is for the logs of their jobs; here it would be taken for the answer.
process.stdout.write = () => true;
try {
  const { algorithms, environments } = await loadPlugins(process.argv.slice(2));
  const added = [...environments.keys()].filter((name) => !ENVIRONMENTS.has(name));
  const told = { algorithms: [...algorithms.keys()], environments: added };
  const names = { ...told, ...algorithmSchemas(algorithms) };
  // Not before all is written; and timers and sockets that plugins have open are not waited for.
  tell(`${JSON.stringify(names)}\n`, () => process.exit(0));
} catch (error) {
  process.stderr.write(`${toAppError(error).message}\n`, () => process.exit(1));
}
