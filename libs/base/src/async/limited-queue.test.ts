import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { LimitedQueue } from "./limited-queue.ts";

const full = () => new Error("full");

/** Work that ends when it is let go, with the numbers that began. */
function gatedWork() {
  const begun: number[] = [];
  const gates: PromiseWithResolvers<void>[] = [];
  const work = (number: number) => async () => {
    begun.push(number);
    gates[number] = Promise.withResolvers();
    await gates[number].promise;
    return number;
  };
  return { begun, work, letGo: (number: number) => gates[number]?.resolve() };
}

test("limited queue: at most the limit runs at a time, in the order of the calls", async () => {
  const queue = new LimitedQueue({ running: 2, waiting: 10 }, full);
  const { begun, work, letGo } = gatedWork();
  const results = [0, 1, 2, 3].map((number) => queue.run(work(number)));
  await nextTurn();
  expect(begun).toEqual([0, 1]);
  letGo(1);
  await nextTurn();
  expect(begun).toEqual([0, 1, 2]);
  letGo(0);
  letGo(2);
  await nextTurn();
  letGo(3);
  expect(await Promise.all(results)).toEqual([0, 1, 2, 3]);
});

test("limited queue: one more than may wait is refused", async () => {
  const queue = new LimitedQueue({ running: 1, waiting: 1 }, full);
  const { work, letGo } = gatedWork();
  const results = [queue.run(work(0)), queue.run(work(1))];
  await expect(queue.run(work(2))).rejects.toThrow("full");
  letGo(0);
  await nextTurn();
  letGo(1);
  expect(await Promise.all(results)).toEqual([0, 1]);
});

test("limited queue: work cancelled while it waits never begins", async () => {
  const queue = new LimitedQueue({ running: 1, waiting: 2 }, full);
  const { begun, work, letGo } = gatedWork();
  const first = queue.run(work(0));
  const abort = new AbortController();
  const calledOff = queue.run(work(1), abort.signal);
  abort.abort(new Error("stopped"));
  await expect(calledOff).rejects.toThrow("stopped");
  letGo(0);
  await first;
  const last = queue.run(work(2));
  await nextTurn();
  letGo(2);
  expect(await last).toBe(2);
  expect(begun).toEqual([0, 2]);
});

test("limited queue: failed work gives its place to the next", async () => {
  const queue = new LimitedQueue({ running: 1, waiting: 1 }, full);
  const failed = queue.run(() => Promise.reject(new Error("no")));
  const next = queue.run(async () => "next");
  await expect(failed).rejects.toThrow("no");
  expect(await next).toBe("next");
});
