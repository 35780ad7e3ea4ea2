import { expect, test } from "vitest";
import { FreshRun } from "./fresh-run.ts";

function countedRun() {
  const open: PromiseWithResolvers<void>[] = [];
  const run = new FreshRun(async () => {
    const gate = Promise.withResolvers<void>();
    const number = open.push(gate);
    await gate.promise;
    return number;
  });
  /** Lets the run of that number begin, and end. */
  const end = async (number: number) => {
    await expect.poll(() => open.length).toBe(number);
    open[number - 1]?.resolve();
  };
  return { run, end, begun: () => open.length };
}

test("fresh run: calls during a run share the next one, which begins after them", async () => {
  const { run, end, begun } = countedRun();
  const first = run.get();
  await expect.poll(begun).toBe(1);
  const during = Array.from({ length: 100 }, () => run.get());
  await end(1);
  expect(await first).toBe(1);
  await end(2);
  expect(new Set(await Promise.all(during))).toEqual(new Set([2]));
  expect(begun()).toBe(2);
});

test("fresh run: a failed run rejects its callers alone", async () => {
  let isFaulty = true;
  const run = new FreshRun(async () => {
    if (isFaulty) throw new Error("no /proc");
    return "well";
  });
  await expect(run.get()).rejects.toThrow("no /proc");
  isFaulty = false;
  expect(await run.get()).toBe("well");
});
