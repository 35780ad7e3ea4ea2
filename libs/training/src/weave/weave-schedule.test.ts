import { expect, test } from "vitest";
import { weaveSchedule } from "./weave-schedule.ts";

test("without a warm start all rounds have local_steps, and the last has what is left", () => {
  const { rounds, stepsOf, stepAfter } = weaveSchedule({ total_steps: 100, local_steps: 32 });
  expect(rounds).toBe(4);
  expect([1, 4].map(stepsOf)).toEqual([32, 4]);
  expect([0, 1, 4].map(stepAfter)).toEqual([0, 32, 100]);
});

test("a warm start has more exchanges, and the steps of all rounds add up", () => {
  const schedule = weaveSchedule({
    ...{ total_steps: 5120, local_steps: 32 },
    ...{ warm_start_steps: 160, warm_start_local_steps: 4 },
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

test("a job of fewer steps than a round has one round of them, also within its warm start", () => {
  const { rounds, stepsOf } = weaveSchedule({ total_steps: 10, local_steps: 1_000 });
  expect([rounds, stepsOf(1)]).toEqual([1, 10]);
  const brief = { warm_start_steps: 10, warm_start_local_steps: 4 };
  const warm = weaveSchedule({ total_steps: 10, local_steps: 8, ...brief });
  expect([1, 2, 3].map(warm.stepsOf)).toEqual([4, 4, 2]);
});

test("a job that is all warm start ends with it", () => {
  const schedule = weaveSchedule({
    ...{ total_steps: 10, local_steps: 8, warm_start_steps: 64, warm_start_local_steps: 2 },
  });
  expect(schedule.rounds).toBe(5);
  expect(schedule.stepAfter(5)).toBe(10);
});
