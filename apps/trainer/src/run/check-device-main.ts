import { toAppError } from "@heddle/base/errors";
import { chooseBackend, openDevice } from "./choose-backend.ts";

// A process that shows whether a device can be computed on, by the backend that follows it, for a worker
// that must not load the libraries itself: exit code 0, or the reason on standard error.

try {
  const [device, backend] = process.argv.slice(2);
  const silent = () => undefined;
  if (device === "cuda" && backend === "tfjs")
    await chooseBackend({ backend, device }, { hasGpu: true, threads: 1 }, silent);
  else await openDevice(device === "cuda" ? "cuda:0" : "cpu", 1);
} catch (error) {
  process.stderr.write(`${toAppError(error).message}\n`);
  process.exit(1);
}
process.exit(0);
