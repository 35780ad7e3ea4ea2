// holds: key-limits-redis
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { hasRedis, REDIS_PROGRAM } from "@heddle/base/testing/redis-server";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Subject } from "../limit-store.ts";
import { keySubject, LimitMasters, MASTERS } from "./testing/limit-masters.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const NOTHING = { tokens: 0, spend: 0 };

describe.skipIf(!hasRedis())(`budgets in Redis (needs ${REDIS_PROGRAM})`, () => {
  let group: LimitMasters;
  beforeAll(async () => {
    group = await LimitMasters.start();
  });
  afterAll(() => group.close());

  it("a Redis that lost its data while no call came: it learns what masters spent", async () => {
    const many = Array.from({ length: 120 }, (_, n) => group.newBudget(`many-${n}`));
    for (const of of many) expect(await group.spendTen(0, of)).toBe(true);
    await group.redis.kill();
    await group.untilClosed(10_000);
    group.redis.restart();
    await group.untilOpen(30_000);
    const client = group.newClient();
    const known = many.map((of) => client.hget(group.keyOf(of), "s:total:master-0"));
    expect(new Set(await Promise.all(known))).toEqual(new Set(["10"]));
    for (const of of many) await client.pexpire(group.keyOf(of), MINUTE_MS);
    const lifetimes = () => Promise.all(many.map((of) => client.pttl(group.keyOf(of))));
    const areKept = async () => Math.min(...(await lifetimes())) > 31 * DAY_MS;
    await eventually(areKept, "the masters keep all of them");
    group.budgets.splice(-many.length);
  });

  it("a budget: 100 calls at once on 50, Redis killed and restarted, never overspent", async () => {
    const holds = await group.admitted(100, group.budget);
    const refusals = await Promise.all(
      holds.map((hold) => hold.reserve({ tokens: 20, spend: 20 })),
    );
    expect(refusals.filter((refusal) => !refusal)).toHaveLength(50);
    for (const [at, hold] of holds.entries()) {
      if (refusals[at]) hold.cancel();
      else hold.finish({ tokens: 10, spend: 10 });
    }
    expect(group.spent()).toBe(500);
    await delay(100);
    for (let i = 0; i < 9; i++) expect(await group.spendTen(i % MASTERS)).toBe(true);
    await group.redis.kill();
    await group.untilClosed();
    let alone = 0;
    for (let i = 0; i < 60; i++) if (await group.spendTen(i % MASTERS)) alone++;
    expect(alone).toBeGreaterThan(3);
    expect(group.spent()).toBeLessThanOrEqual(1000);
    group.redis.restart();
    await group.untilOpen();
    for (let i = 0; i < 60; i++) await group.spendTen(i % MASTERS);
    // The last 10 cannot be reserved, since a call reserves 20.
    expect(group.spent()).toBe(990);
  });

  it("a budget: what a better estimate of a call frees is there for others", async () => {
    const of = group.newBudget("corrected");
    const [first] = await group.admitted(1, of);
    expect(await first?.reserve({ tokens: 5, spend: 1000 })).toBeUndefined();
    expect(group.spent(of)).toBe(1000);
    first?.correct({ tokens: 5, spend: 100 });
    const [second] = await group.admitted(1, of);
    expect(await second?.reserve({ tokens: 5, spend: 900 })).toBeUndefined();
    for (const hold of [first, second]) hold?.finish(NOTHING);
    // A call that has ended changes nothing more.
    first?.correct({ tokens: 5, spend: 1000 });
    const [third] = await group.admitted(1, of);
    expect(await third?.reserve({ tokens: 5, spend: 1000 })).toBeUndefined();
    third?.finish(NOTHING);
  });

  it("a budget that one master spent: without Redis the others spend what is left", async () => {
    const of = group.newBudget("uneven");
    for (let i = 0; i < 90; i++) expect(await group.spendTen(0, of)).toBe(true);
    for (const master of [1, 2]) expect(await group.spendTen(master, of)).toBe(true);
    expect(await group.spendTen(2, group.newBudget("another"))).toBe(true);
    expect(group.masters[2]!.store.limits.budgetLeft(of)).toBe(80);
    await group.redis.kill();
    await group.untilClosed(10_000);
    let alone = 0;
    for (let i = 0; i < 60; i++) if (await group.spendTen(1 + (i % 2), of)) alone++;
    // Of a budget that no call has named, each has its share.
    const unseen = group.newBudget("never-seen");
    expect(group.masters.map(({ store }) => store.limits.budgetLeft(unseen))).toEqual([
      334, 333, 333,
    ]);
    expect(await group.spendTen(1, unseen)).toBe(true);
    expect(group.masters[1]!.store.limits.budgetLeft(unseen)).toBe(323);
    group.redis.restart();
    await group.untilOpen(30_000);
    expect(alone).toBeGreaterThan(0);
    expect(group.spent(of)).toBeLessThanOrEqual(1000);
  });

  it("a budget that Redis has lost: every master sends its part again", async () => {
    const of = group.newBudget("lost-budget");
    for (let i = 0; i < 90; i++) expect(await group.spendTen(i % MASTERS, of)).toBe(true);
    const client = group.newClient();
    expect(await client.del(group.keyOf(of))).toBe(1);
    for (let i = 0; i < 60; i++) await group.spendTen(i % MASTERS, of);
    expect(group.spent(of)).toBeLessThanOrEqual(1000);
    await group.untilOpen();
    for (let i = 0; i < 60; i++) await group.spendTen(i % MASTERS, of);
    expect(group.spent(of)).toBe(990);
  });

  it("masters keep a total budget in Redis as long as it is set", async () => {
    const of = group.newBudget("kept");
    const removed = group.newBudget("removed");
    for (const each of [of, removed]) expect(await group.spendTen(0, each)).toBe(true);
    group.budgets.splice(group.budgets.indexOf(removed), 1);
    const client = group.newClient();
    for (const each of [of, removed]) await client.pexpire(group.keyOf(each), MINUTE_MS);
    const lifetime = (each: Subject) => client.pttl(group.keyOf(each));
    await eventually(async () => (await lifetime(of)) > 31 * DAY_MS, "a master keeps it");
    expect(await lifetime(removed)).toBeLessThanOrEqual(MINUTE_MS);
    expect(await client.hget(group.keyOf(of), "s:total:master-0")).toBe("10");
  });

  it("a budget that is taken away and set again: what was spent meanwhile counts", async () => {
    const of = group.newBudget("again");
    const changed = () => {
      for (const { store } of group.masters) store.limits.limitsChanged();
    };
    for (let i = 0; i < 30; i++) expect(await group.spendTen(i % MASTERS, of)).toBe(true);
    group.budgets.splice(group.budgets.indexOf(of), 1);
    changed();
    const free = { ...of, limits: { requestsPerMinute: 1_000_000 } };
    for (let i = 0; i < 30; i++) expect(await group.spendTen(i % MASTERS, free)).toBe(true);
    // As it would be after the lifetime of a subject without a budget.
    await group.newClient().del(group.keyOf(of));
    group.budgets.push(of);
    changed();
    let passed = 0;
    for (let i = 0; i < 60; i++) if (await group.spendTen(i % MASTERS, of)) passed++;
    expect(group.isOpen).toBe(true);
    expect(passed).toBe(39);
    expect(group.spent(of)).toBe(990);
  });

  it("a new day's budget is whole, with Redis and without it", async () => {
    const of = keySubject("daily", { budget: { amount: 300, period: "day" } });
    for (let i = 0; i < 25; i++) expect(await group.spendTen(0, of)).toBe(true);
    expect(await group.spendTen(1, of)).toBe(true);
    const left = (master: number) => group.masters[master]!.store.limits.budgetLeft(of);
    expect(left(0)).toBe(50);
    expect(left(1)).toBe(40);
    await group.withoutRedis(async () => {
      expect(left(1)).toBe(13);
      group.calendar.aheadMs = DAY_MS;
      expect(left(1)).toBe(100);
    });
    expect(left(0)).toBe(300);
    group.calendar.aheadMs = 0;
  });
});
