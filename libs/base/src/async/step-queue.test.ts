// holds: bound-list-steps

import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { StepQueue } from "./step-queue.ts";

test("StepQueue: many short pieces do not make one long turn", async () => {
  let nowMs = 0;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => nowMs);
  onTestFinished(() => clock.mockRestore());
  const queue = new StepQueue("pieces");
  let inTurn = 0;
  let longest = 0;
  let left = 100;
  for (let at = 0; at < 100; at++) {
    void queue.run(function* () {
      nowMs += 4;
      longest = Math.max(longest, ++inTurn);
      left--;
      yield;
    });
  }
  while (left > 0) {
    await nextTurn();
    inTurn = 0;
  }
  expect(longest).toBeLessThanOrEqual(3);
});
