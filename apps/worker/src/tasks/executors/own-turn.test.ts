// holds: task-many-on-one-worker

import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { inOwnTurn } from "./own-turn.ts";

test("own turn: of many starts at once, each turn of the event loop has at most one", async () => {
  let turn = 0;
  const startedIn: number[] = [];
  const never = new Promise<void>(() => undefined);
  const starts = Array.from({ length: 50 }, (_, i) =>
    inOwnTurn(async () => {
      startedIn.push(turn);
      if (i % 10 === 3) throw new Error(`start ${i} failed`);
      if (i % 10 === 7) await never;
    }),
  );
  const failed = Promise.allSettled(starts.filter((_, i) => i % 10 === 3));
  for (; startedIn.length < 50 && turn < 1_000; turn++) await nextTurn();
  expect(startedIn).toHaveLength(50);
  expect(new Set(startedIn).size).toBe(50);
  expect((await failed).map(({ status }) => status)).toEqual(Array(5).fill("rejected"));
});
