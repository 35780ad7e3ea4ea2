import { readFileSync } from "node:fs";

/**
 * Loaded into a master by `node --import`, for tests of clocks that jump, and nowhere else: puts
 * Date off by the milliseconds that the file HEDDLE_TEST_CLOCK_FILE holds, as a machine whose clock
 * was set would see it. The monotonic clock goes on as it is, as it does there.
 */
const file = process.env["HEDDLE_TEST_CLOCK_FILE"] ?? "";
let offsetMs = 0;
setInterval(() => {
  try {
    offsetMs = Number(readFileSync(file, "utf8")) || 0;
  } catch {
    offsetMs = 0; // Not written yet: the clock is right.
  }
}, 50).unref();

const RealDate = Date;
const now = () => RealDate.now() + offsetMs;
globalThis.Date = class extends RealDate {
  constructor(...given: unknown[]) {
    if (given.length === 0) super(now());
    else super(...(given as [number]));
  }
  static override now(): number {
    return now();
  }
} as DateConstructor;
