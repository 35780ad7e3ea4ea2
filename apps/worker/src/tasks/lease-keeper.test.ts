import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { LeaseKeeper } from "./lease-keeper.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "heddle-lease-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

test("lease: a leader of a restored cluster is followed at a lower term, also after a restart", async () => {
  const before = await LeaseKeeper.open(directory);
  await before.begin("old", 7, 60_000);
  await before.renew(before.ask());
  await before.close();
  const keeper = await LeaseKeeper.open(directory);
  let ended = 0;
  keeper.onExpired(() => ended++);
  expect(keeper.isLive).toBe(true);
  await expect(keeper.begin("old", 6, 60_000)).rejects.toThrow(/term 6 is over/);
  expect(ended).toBe(0);
  await keeper.begin("restored", 2, 60_000);
  // What ran under the cluster before is ended, so that nothing runs twice.
  expect([ended, keeper.isLive]).toEqual([1, false]);
  await keeper.renew(keeper.ask());
  expect(keeper.isLive).toBe(true);
  await keeper.begin("restored", 3, 60_000);
  expect([ended, keeper.isLive]).toEqual([1, true]);
  await expect(keeper.begin("restored", 2, 60_000)).rejects.toThrow(/term 2 is over/);
  await keeper.close();
  const after = await LeaseKeeper.open(directory);
  await expect(after.begin("restored", 2, 60_000)).rejects.toThrow(/term 2 is over/);
  await after.close();
});
