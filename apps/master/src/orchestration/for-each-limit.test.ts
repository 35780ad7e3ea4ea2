import { expect, test } from "vitest";
import { forEachLimit } from "./for-each-limit.ts";

test("forEachLimit: bounds the concurrency, runs each item once, reports an error", async () => {
  let underWay = 0;
  let most = 0;
  const done: number[] = [];
  const work = async (item: number) => {
    underWay++;
    most = Math.max(most, underWay);
    await new Promise((resolve) => setImmediate(resolve));
    underWay--;
    done.push(item);
  };
  await forEachLimit([1, 2, 3, 4, 5, 6, 7], 3, work);
  expect(most).toBe(3);
  expect(done.sort()).toEqual([1, 2, 3, 4, 5, 6, 7]);
  const fails = forEachLimit([1, 2], 1, (item) => Promise.reject(new Error(`${item}`)));
  await expect(fails).rejects.toThrow("1");
});
