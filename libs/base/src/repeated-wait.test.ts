// holds: bound-waits

import { expect, test, vi } from "vitest";
import { repeatedWait } from "./repeated-wait.ts";

test("repeated wait: repeated waits leave no handler on the promise", async () => {
  const { promise, resolve: end } = Promise.withResolvers<string>();
  const waiters = vi.spyOn(promise, "then");
  const wait = repeatedWait(promise);
  for (let at = 0; at < 20; at++) expect(await wait(1)).toBeUndefined();
  expect(waiters).toHaveBeenCalledTimes(1);
  const last = wait(3_600_000);
  end("over");
  expect(await last).toBe("over");
  expect(await wait(3_600_000)).toBe("over");
});

test("repeated wait: a promise that rejects makes the wait reject", async () => {
  const wait = repeatedWait(Promise.reject(new Error("lost")));
  await expect(wait(3_600_000)).rejects.toThrow("lost");
});
