import { readFileSync } from "node:fs";

/**
 * Loaded into a master by `node --import` in tests of clock jumps only. It shifts Date by the
 * milliseconds in the file HEDDLE_TEST_CLOCK_FILE; the monotonic clock is unchanged, as on a
 * machine whose clock was set.
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
