// holds: life-timers

import { expect, test } from "vitest";
import { LogClock } from "./log-clock.ts";

/** A clock of the log beside a machine's clocks, all of which a test sets. */
function clocks() {
  const set = { logTimeMs: 0, wall: 1_000_000, monotonic: 50 };
  const clock = new LogClock(set, { wallMs: () => set.wall, monotonicMs: () => set.monotonic });
  return { set, clock };
}

test("log clock: the wall clock while that is ahead of the log", () => {
  const { set, clock } = clocks();
  set.logTimeMs = 999_000;
  expect(clock.wallMs()).toBe(1_000_000);
  set.wall = 1_000_500;
  expect(clock.wallMs()).toBe(1_000_500);
});

test("log clock: continues after the wall clock was set back behind the log", () => {
  const { set, clock } = clocks();
  set.logTimeMs = 4_600_000;
  expect(clock.wallMs()).toBe(4_600_000);
  set.monotonic += 10_000;
  expect(clock.wallMs()).toBe(4_610_000);
  // An entry was received meanwhile: time that has passed before it counts.
  Object.assign(set, { logTimeMs: 4_603_000, monotonic: set.monotonic + 5_000 });
  expect(clock.wallMs()).toBe(4_615_000);
});
