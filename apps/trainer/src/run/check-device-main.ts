import { toAppError } from "@heddle/base/errors";
import { chooseBackend, openDevice } from "./choose-backend.ts";

// Exits with 0 if a device can compute with a backend, else prints the reason on standard error. It
// is a process because the worker must not load the libraries.

try {
  const [device, backend] = process.argv.slice(2);
  const silent = { warn: () => undefined };
  if (device === "cuda" && backend === "tfjs")
    await chooseBackend({ backend, device }, { hasGpu: true, threads: 1 }, silent);
  else await openDevice(device === "cuda" ? "cuda:0" : "cpu", 1);
} catch (error) {
  process.stderr.write(`${toAppError(error).message}\n`);
  process.exit(1);
}
process.exit(0);
