import { expect, test } from "vitest";
import { StaleReadGuard } from "./stale-read-guard.ts";

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

/** With timeouts of 10 and 1 ticks; each question is answered by hand. */
function absence() {
  const asked: PromiseWithResolvers<void>[] = [];
  const one = new StaleReadGuard({ electionTicks: 10, heartbeatTicks: 1 }, () => {
    asked.push(Promise.withResolvers<void>());
    return asked.at(-1)?.promise as Promise<void>;
  });
  const end = async (at: number, how: "resolve" | "reject") => {
    asked[at]?.[how]();
    await settled();
  };
  return { one, asked, end };
}

test("absence: it begins where others may have elected a leader, and not a tick before", () => {
  const { one, asked } = absence();
  one.tick(1);
  one.tick(8);
  expect([one.lasts, asked.length]).toEqual([false, 0]);
  one.tick(9);
  expect([one.lasts, asked.length]).toEqual([true, 1]);
});

test("absence: it lasts until the question is answered, and is asked once meanwhile", async () => {
  const { one, asked, end } = absence();
  one.tick(20);
  one.tick(1);
  expect([one.lasts, asked.length]).toEqual([true, 1]);
  await end(0, "resolve");
  expect(one.lasts).toBe(false);
  one.tick(1);
  expect(asked.length).toBe(1);
});

test("absence: without an answer the next tick asks again", async () => {
  const { one, asked, end } = absence();
  one.tick(20);
  await end(0, "reject");
  expect([one.lasts, asked.length]).toEqual([true, 1]);
  one.tick(1);
  expect(asked.length).toBe(2);
  await end(1, "resolve");
  expect(one.lasts).toBe(false);
});

test("absence: what was asked before a second one does not end it", async () => {
  const { one, asked, end } = absence();
  one.tick(20);
  one.tick(20);
  expect(asked.length).toBe(2);
  await end(0, "resolve");
  expect(one.lasts).toBe(true);
  await end(1, "resolve");
  expect(one.lasts).toBe(false);
});

test("absence: with heartbeats as long as the timeout a single tick is none", () => {
  const one = new StaleReadGuard({ electionTicks: 1, heartbeatTicks: 1 }, () => Promise.resolve());
  one.tick(0);
  expect(one.lasts).toBe(false);
});
