import { toAppError } from "@heddle/base/errors";
import { openDevice } from "./choose-backend.ts";

// A process that shows whether a device can be computed on, for a worker that must not load the
// libraries itself: exit code 0, or the reason on standard error.

try {
  await openDevice(process.argv[2] === "cuda" ? "cuda:0" : "cpu", 1);
} catch (error) {
  process.stderr.write(`${toAppError(error).message}\n`);
  process.exit(1);
}
process.exit(0);
