import fc from "fast-check";
import { expect, test } from "vitest";
import { forEachLimit } from "./for-each-limit.ts";

test("forEachLimit: each item once, never more at once than the limit", async () => {
  const property = fc.asyncProperty(
    fc.array(fc.nat(3), { maxLength: 20 }),
    fc.integer({ min: 1, max: 6 }),
    async (turns, limit) => {
      const begun: number[] = [];
      let underWay = 0;
      let most = 0;
      await forEachLimit([...turns.entries()], limit, async ([at, wait]) => {
        begun.push(at);
        most = Math.max(most, ++underWay);
        for (let i = 0; i < wait; i++) await Promise.resolve();
        underWay--;
      });
      expect(begun).toEqual([...turns.keys()]);
      expect(most).toBeLessThanOrEqual(limit);
      if (turns.length > 0) expect(most).toBeGreaterThan(0);
      expect(underWay).toBe(0);
    },
  );
  await fc.assert(property);
});

test("forEachLimit: after an error no item starts, and the running ones end", async () => {
  const ended: (number | undefined)[] = [];
  const begun: (number | undefined)[] = [];
  const work = async (item: number | undefined) => {
    begun.push(item);
    await Promise.resolve();
    if (item === 1) throw new Error("one");
    await new Promise((resolve) => setImmediate(resolve));
    ended.push(item);
  };
  await expect(forEachLimit([undefined, 1, 2, 3, 4], 2, work)).rejects.toThrow("one");
  expect(begun).toEqual([undefined, 1]);
  expect(ended).toEqual([undefined]);
});

test("forEachLimit: an error or the caller's signal aborts what runs", async () => {
  const reasons: unknown[] = [];
  const wait = (signal: AbortSignal) =>
    new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => {
        reasons.push(signal.reason);
        resolve();
      });
    });
  const error = new Error("one");
  const work = async (item: number, signal: AbortSignal) => {
    if (item === 1) throw error;
    await wait(signal);
  };
  await expect(forEachLimit([0, 1, 2], 2, work)).rejects.toBe(error);
  const caller = new AbortController();
  const run = forEachLimit([0, 2, 3], 2, work, caller.signal);
  caller.abort("left");
  await expect(run).rejects.toBe("left");
  expect(reasons).toEqual([error, "left", "left"]);
});
