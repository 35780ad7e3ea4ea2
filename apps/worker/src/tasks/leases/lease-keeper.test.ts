import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nextClusterId } from "@heddle/base/cluster-id";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { afterEach, beforeEach, expect, test } from "vitest";
import { LeaseKeeper } from "./lease-keeper.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "heddle-lease-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

const formed = "0123456789abcdef0123456789abcdef";
const restored = nextClusterId(formed, 20, "ab");

const open = () => LeaseKeeper.open(directory, new FollowedCluster(directory));

// holds: ops-restore-incarnation
test("lease: a restored cluster's leader is followed at a lower term, also later", async () => {
  const before = await open();
  await before.begin(formed, 7, 60_000);
  await before.renew(before.ask());
  await before.close();
  const keeper = await open();
  let ended = 0;
  keeper.onExpired(() => ended++);
  expect(keeper.isLive).toBe(true);
  await expect(keeper.begin(formed, 6, 60_000)).rejects.toThrow(/term 6 has ended/);
  expect(ended).toBe(0);
  await keeper.begin(restored, 2, 60_000);
  // Tasks of the earlier cluster are ended, so that none runs twice.
  expect([ended, keeper.isLive]).toEqual([1, false]);
  await keeper.renew(keeper.ask());
  expect(keeper.isLive).toBe(true);
  await keeper.begin(restored, 3, 60_000);
  expect([ended, keeper.isLive]).toEqual([1, true]);
  await expect(keeper.begin(restored, 2, 60_000)).rejects.toThrow(/term 2 has ended/);
  await keeper.close();
  const after = await open();
  await expect(after.begin(restored, 2, 60_000)).rejects.toThrow(/term 2 has ended/);
  await after.close();
});

// holds: ops-restore-incarnation
test("lease: after a later incarnation an earlier one is never followed", async () => {
  const keeper = await open();
  await keeper.begin(formed, 7, 60_000);
  await keeper.begin(restored, 2, 60_000);
  await keeper.renew(keeper.ask());
  for (const earlier of [
    formed,
    nextClusterId(formed, 10, "cd"),
    nextClusterId(formed, 20, "ef"),
  ]) {
    await expect(keeper.begin(earlier, 99, 60_000)).rejects.toMatchObject({
      code: "precondition_failed",
    });
  }
  expect(keeper.isLive).toBe(true);
  await keeper.close();
  const later = await open();
  await expect(later.begin(formed, 99, 60_000)).rejects.toThrow(/later incarnation/);
  await later.begin(nextClusterId(restored, 30, "cd"), 1, 60_000);
  await later.close();
});

test("lease: a later incarnation's master ends it, before there is a leader", async () => {
  const followed = new FollowedCluster(directory);
  const keeper = await LeaseKeeper.open(directory, followed);
  await keeper.begin(formed, 7, 60_000);
  await keeper.renew(keeper.ask());
  await followed.follow(restored);
  expect(keeper.isLive).toBe(false);
  await keeper.close();
  const after = await open();
  expect(after.isLive).toBe(false);
  await after.begin(restored, 1, 60_000);
  await after.close();
});

test("lease: a stored term without its cluster is not compared", async () => {
  const kept = { boot: "another", expiresAtMs: 0, term: 9 };
  writeFileSync(join(directory, "lease.json"), JSON.stringify(kept));
  const keeper = await open();
  await keeper.begin(restored, 2, 60_000);
  await keeper.close();
});

// holds: task-lease-guard
test("lease: what an earlier boot of the machine stored ends with it", async () => {
  const before = await open();
  await before.begin(formed, 7, 60_000);
  await before.renew(before.ask());
  await before.close();
  const path = join(directory, "lease.json");
  const kept = JSON.parse(readFileSync(path, "utf8")) as { boot: string };
  const same = await open();
  expect(same.isLive).toBe(true);
  await same.close();
  writeFileSync(path, JSON.stringify({ ...kept, boot: "another" }));
  const after = await open();
  expect(after.isLive).toBe(false);
  await after.close();
});

// holds: task-lease
test("lease: the tasks of an expired one end before it is renewed", async () => {
  const keeper = await open();
  let ended = 0;
  keeper.onExpired(() => ended++);
  await keeper.begin(formed, 7, 300);
  await keeper.renew(keeper.ask());
  expect(ended).toBe(0);
  // Nothing checks the lease meanwhile, as in a process that was stopped.
  await new Promise((resolve) => setTimeout(resolve, 400));
  await keeper.begin(formed, 7, 60_000);
  await keeper.renew(keeper.ask());
  expect([ended, keeper.isLive]).toEqual([1, true]);
  await keeper.close();
});
