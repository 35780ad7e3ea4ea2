// holds: train-weave

import { expect, test } from "vitest";
import { fragmentSchedule, weaveSchedule } from "./weave-schedule.ts";

test("schedule: without a warm start every round but the last has local_steps", () => {
  const { rounds, stepsOf, stepAfter } = weaveSchedule({ total_steps: 100, local_steps: 32 });
  expect(rounds).toBe(4);
  expect([1, 4].map(stepsOf)).toEqual([32, 4]);
  expect([0, 1, 4].map(stepAfter)).toEqual([0, 32, 100]);
});

test("schedule: a warm start has more exchanges, and the steps add up", () => {
  const schedule = weaveSchedule({
    total_steps: 5120,
    local_steps: 32,
    warm_start_steps: 160,
    warm_start_local_steps: 4,
  });
  expect(schedule.rounds).toBe(40 + 155);
  let steps = 0;
  for (let round = 1; round <= schedule.rounds; round++) {
    expect(schedule.stepAfter(round - 1)).toBe(steps);
    steps += schedule.stepsOf(round);
  }
  expect(steps).toBe(5120);
  expect(schedule.stepAfter(schedule.rounds)).toBe(5120);
});

test("schedule: a job shorter than a round has one round, also in its warm start", () => {
  const { rounds, stepsOf } = weaveSchedule({ total_steps: 10, local_steps: 1_000 });
  expect([rounds, stepsOf(1)]).toEqual([1, 10]);
  const brief = { warm_start_steps: 10, warm_start_local_steps: 4 };
  const warm = weaveSchedule({ total_steps: 10, local_steps: 8, ...brief });
  expect([1, 2, 3].map(warm.stepsOf)).toEqual([4, 4, 2]);
});

test("schedule: a job that is all warm start ends with it", () => {
  const schedule = weaveSchedule({
    total_steps: 10,
    local_steps: 8,
    warm_start_steps: 64,
    warm_start_local_steps: 2,
  });
  expect(schedule.rounds).toBe(5);
  expect(schedule.stepAfter(5)).toBe(10);
});

test("fragments: one without overlap is exchanged and merged at each round's end", () => {
  const schedule = weaveSchedule({ total_steps: 70, local_steps: 32 });
  const { eventsOf, underWayAfter } = fragmentSchedule(schedule, {
    fragments: 1,
    overlap_steps: 0,
  });
  expect([1, 2, 3].map(eventsOf)).toEqual(
    [32, 64, 70].map((step) => [{ step, begin: [0], merge: [0] }]),
  );
  expect([0, 1, 2, 3].flatMap(underWayAfter)).toEqual([]);
});

test("fragments: spread over a round, merged overlap_steps later or in the next", () => {
  const schedule = weaveSchedule({ total_steps: 96, local_steps: 32 });
  const { eventsOf, underWayAfter } = fragmentSchedule(schedule, {
    fragments: 2,
    overlap_steps: 6,
  });
  expect(eventsOf(1)).toEqual([
    { step: 16, begin: [0], merge: [] },
    { step: 22, begin: [], merge: [0] },
    { step: 32, begin: [1], merge: [] },
  ]);
  expect(underWayAfter(1)).toEqual([1]);
  expect(eventsOf(2)[0]).toEqual({ step: 38, begin: [], merge: [1] });
  // At the end all are exchanged, so that no progress is lost.
  expect(eventsOf(3)).toEqual([
    { step: 70, begin: [], merge: [1] },
    { step: 96, begin: [0, 1], merge: [0, 1] },
  ]);
  expect(underWayAfter(3)).toEqual([]);
});

test("fragments: each begins and merges once a round, for rounds of any length", () => {
  for (const [total_steps, local_steps, fragments, overlap_steps] of [
    [100, 32, 4, 31],
    [101, 7, 7, 6],
    [64, 8, 3, 1],
    [5, 1, 1, 0],
    [9, 8, 5, 7],
  ] as const) {
    const warm = { warm_start_steps: 10, warm_start_local_steps: 2 };
    const schedule = weaveSchedule({ total_steps, local_steps, ...warm });
    const { eventsOf } = fragmentSchedule(schedule, { fragments, overlap_steps });
    const underWay = new Set<number>();
    const count = { begin: 0, merge: 0 };
    let before = 0;
    for (let round = 1; round <= schedule.rounds; round++) {
      for (const { step, begin, merge } of eventsOf(round)) {
        expect(step).toBeGreaterThan(before);
        before = step;
        for (const fragment of begin) {
          expect(underWay.has(fragment)).toBe(false);
          underWay.add(fragment);
          count.begin++;
        }
        for (const fragment of merge) {
          expect(underWay.delete(fragment)).toBe(true);
          count.merge++;
        }
      }
      expect(before).toBe(schedule.stepAfter(round));
    }
    expect(underWay.size).toBe(0);
    expect(count).toEqual({
      begin: schedule.rounds * fragments,
      merge: schedule.rounds * fragments,
    });
  }
});
