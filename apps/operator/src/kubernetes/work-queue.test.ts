import { setTimeout as delay } from "node:timers/promises";
import { expect, it } from "vitest";
import { WorkQueue } from "./work-queue.ts";

it("work queue: a key waits once, and is not worked on twice at the same time", async () => {
  const running = new Set<string>();
  const worked: string[] = [];
  let most = 0;
  const work = async (key: string) => {
    expect(running.has(key)).toBe(false);
    running.add(key);
    most = Math.max(most, running.size);
    await delay(5);
    worked.push(key);
    running.delete(key);
  };
  const queue = new WorkQueue({ concurrency: 2, work, onError: () => {} });
  for (let round = 0; round < 3; round++) for (const key of ["a", "b", "c"]) queue.add(key);
  // The first two ran at once, so they are worked on once more.
  await expect.poll(() => worked.length).toBe(5);
  for (const key of ["a", "a", "b"]) queue.add(key);
  await delay(2);
  queue.add("a"); // While it runs: once more afterwards.
  await expect.poll(() => worked.length).toBe(8);
  expect(worked.filter((key) => key === "a")).toHaveLength(4);
  expect(most).toBe(2);
});

it("work queue: failed work is repeated after a pause, other keys continue meanwhile", async () => {
  const tries: string[] = [];
  const pauses: number[] = [];
  const work = async (key: string) => {
    tries.push(key);
    if (key === "bad" && tries.filter((each) => each === key).length < 3) throw new Error("no");
  };
  const onError = (_: string, __: unknown, pauseMs: number) => void pauses.push(pauseMs);
  const queue = new WorkQueue({ concurrency: 1, work, onError });
  queue.add("bad");
  queue.add("good");
  await expect.poll(() => tries.filter((key) => key === "bad").length).toBe(3);
  expect(tries.slice(0, 2)).toEqual(["bad", "good"]);
  expect(pauses).toHaveLength(2);
  expect(pauses[0]).toBeGreaterThanOrEqual(100);
});

it("work queue: closing waits for the work under way and begins nothing new", async () => {
  const worked: string[] = [];
  const work = async (key: string) => {
    await delay(20);
    worked.push(key);
  };
  const queue = new WorkQueue({ concurrency: 1, work, onError: () => {} });
  queue.add("a");
  queue.add("b");
  queue.addAfter("c", 1);
  await delay(1);
  await queue.close();
  queue.add("d");
  await delay(50);
  expect(worked).toEqual(["a"]);
});
