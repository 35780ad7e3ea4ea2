// holds: key-limits-redis
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { hasRedis, REDIS_PROGRAM } from "@heddle/base/testing/redis-server";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMIT_CEILING } from "../../rate-limiter.ts";
import type { Hold } from "../limit-store.ts";
import { keySubject, LimitMasters, MASTERS, STORE_TIMEOUT_MS } from "./testing/limit-masters.ts";

const NOTHING = { tokens: 0, spend: 0 };
/** How long Redis counts the calls of a master that has gone. */
const SESSION_MS = 10_000;

describe.skipIf(!hasRedis())(`limits in Redis (needs ${REDIS_PROGRAM})`, () => {
  let group: LimitMasters;
  beforeAll(async () => {
    group = await LimitMasters.start();
  });
  afterAll(() => group.close());

  it("new connections to a Redis that kept its data: rates stay as they were", async () => {
    const before = group.masters.map(({ store }) => store.session.id);
    await group.newClient().call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    const isNew = () =>
      group.isOpen && group.masters.every(({ store }, i) => store.session.id !== before[i]);
    await eventually(isNew, "the masters count in Redis again", 30_000);
    const holds = await group.admitted(60, keySubject("interrupted", { requestsPerMinute: 60 }));
    expect(holds.length).toBeGreaterThanOrEqual(60);
    for (const hold of holds) hold.finish(NOTHING);
  });

  it("200 calls at once over three masters on a limit of 50: exactly 50 pass", async () => {
    const sinceMs = performance.now();
    const holds = await group.admitted(200, keySubject("requests", { requestsPerMinute: 50 }));
    expect(holds.length).toBeGreaterThanOrEqual(50);
    // What refills meanwhile lets some more pass.
    expect(holds.length).toBeLessThanOrEqual(51 + (performance.now() - sinceMs) / 1_200);
    for (const hold of holds) hold.finish(NOTHING);
  });

  it.each([7, 50, 60])("the first call of a limit of %i leaves the others", async (limit) => {
    const [hold] = await group.admitted(
      1,
      keySubject(`first-${limit}`, { requestsPerMinute: limit }),
    );
    expect(hold?.views()).toMatchObject([{ requests: { limit, remaining: limit - 1 } }]);
    hold?.finish(NOTHING);
  });

  it("calls at once: as many as the limit, and again after they have ended", async () => {
    for (let round = 0; round < 2; round++) {
      const holds = await group.admitted(100, keySubject("calls", { concurrency: 50 }));
      expect(holds).toHaveLength(50);
      for (const hold of holds) hold.finish(NOTHING);
      await delay(100);
    }
  });

  it("tokens: reserved once, corrected by what was used", async () => {
    const of = keySubject("tokens", { tokensPerMinute: 1000 });
    const [hold] = await group.admitted(1, of);
    expect(await hold?.reserve({ tokens: 900, spend: 0 })).toBeUndefined();
    hold?.finish({ tokens: 100, spend: 0 });
    await delay(100);
    const [second] = await group.admitted(1, of);
    expect(await second?.reserve({ tokens: 850, spend: 0 })).toBeUndefined();
    const [third] = await group.admitted(1, of);
    const refusal = await third?.reserve({ tokens: 850, spend: 0 });
    expect(refusal).toMatchObject({ limitedBy: "tokens", limit: 1000 });
    expect(refusal?.retryAfterMs).toBeGreaterThan(10_000);
  });

  it("after an outage every rate begins empty, so no limit is passed", async () => {
    const of = keySubject("outage", { requestsPerMinute: 60 });
    expect((await group.admitted(60, of)).length).toBeGreaterThanOrEqual(60);
    await group.redis.kill();
    await group.untilClosed();
    const sinceMs = performance.now();
    let passed = (await group.admitted(60, of)).length;
    group.redis.restart();
    await group.untilOpen();
    passed += (await group.admitted(60, of)).length;
    expect(passed).toBeLessThanOrEqual((performance.now() - sinceMs) / 1000 + 1);
  });

  it("a Redis that lost its data while no call came: every rate begins empty", async () => {
    const of = keySubject("lost", { requestsPerMinute: 60 });
    await group.redis.kill();
    await group.untilClosed();
    const sinceMs = performance.now();
    group.redis.restart();
    await group.untilOpen();
    // All masters have had time to send it their spend.
    expect(performance.now() - sinceMs).toBeGreaterThan(1_500);
    const passed = (await group.admitted(60, of)).length;
    expect(passed).toBeLessThanOrEqual((performance.now() - sinceMs) / 1000 + 1);
  });

  it("rates: a call that began before Redis lost its data gives nothing back", async () => {
    // A token each millisecond.
    const of = keySubject("outlived", { requestsPerMinute: 60_000, tokensPerMinute: 60_000 });
    // After an outage the rate begins empty, and refills.
    const takeTen = async () => {
      let hold: Hold | undefined;
      await eventually(async () => {
        [hold] = await group.admitted(1, of);
        return hold !== undefined && (await hold.reserve({ tokens: 10, spend: 0 })) === undefined;
      }, "Redis has counted ten tokens");
      return hold;
    };
    const before = await takeTen();
    await group.withoutRedis();
    await takeTen();
    const client = group.newClient();
    const counted = await client.hmget(group.keyOf(of), "r", "t");
    before?.cancel();
    // One connection keeps the order.
    await group.admitted(1, keySubject("behind", { requestsPerMinute: 60 }));
    expect(await client.hmget(group.keyOf(of), "r", "t")).toEqual(counted);
  });

  it("calls at once: those that run while Redis loses its data count in the next one", async () => {
    const of = keySubject("running", { concurrency: 50 });
    const running = await group.admitted(30, of);
    await group.redis.kill();
    await group.untilClosed();
    group.redis.restart();
    await group.untilOpen();
    // The first call of each master reports to the new Redis what it runs.
    running.push(...(await group.admitted(MASTERS, of)));
    running.push(...(await group.admitted(50, of)));
    expect(running).toHaveLength(50);
    for (const hold of running) hold.finish(NOTHING);
  });

  it("a call that Redis has admitted continues without it, within this master's share", async () => {
    const of = keySubject("continues", {
      tokensPerMinute: 900,
      ...group.newBudget("continues").limits,
    });
    const [hold] = await group.admitted(1, of);
    const { store, spend } = group.masters[0]!;
    await group.withoutRedis(async () => {
      const tooMany = { limitedBy: "tokens", limit: 300 };
      expect(await hold?.reserve({ tokens: 301, spend: 0 })).toMatchObject(tooMany);
      expect(await hold?.reserve({ tokens: 1, spend: 1001 })).toMatchObject({ limitedBy: "spend" });
      expect(spend.of(of)).toBe(0);
      expect(await hold?.reserve({ tokens: 300, spend: 50 })).toBeUndefined();
      expect(spend.of(of)).toBe(50);
      hold?.correct({ tokens: 200, spend: 20 });
      expect(spend.of(of)).toBe(20);
      for (let time = 0; time < 2; time++) hold?.finish({ tokens: 100, spend: 10 });
      hold?.cancel();
      expect(spend.of(of)).toBe(10);
      expect(store.limits.views([of])).toMatchObject([{ tokens: { limit: 300, remaining: 0 } }]);
    });
    // The next call sends Redis what was spent without it.
    expect(await group.spendTen(0, keySubject("continues", group.budget.limits))).toBe(true);
    expect(await group.newClient().hget(group.keyOf(of), "s:total:master-0")).toBe("20");
  });

  it("a call that ends while it reserves gives it back, and ends once", async () => {
    const of = keySubject("ends", { concurrency: 2, ...group.newBudget("ends").limits });
    const [first, second] = [...(await group.admitted(1, of)), ...(await group.admitted(1, of))];
    const reserving = first?.reserve({ tokens: 5, spend: 1000 });
    for (let time = 0; time < 2; time++) first?.cancel();
    first?.finish({ tokens: 5, spend: 1000 });
    expect(await reserving).toBeUndefined();
    expect(group.spent(of)).toBe(0);
    const isFree = async () => (await second?.reserve({ tokens: 5, spend: 1000 })) === undefined;
    await eventually(isFree, "the budget is there for others");
    expect(await group.admitted(5, of)).toHaveLength(1);
    second?.finish(NOTHING);
  });

  it("views and budgets without a call are those of this master", async () => {
    const { limits } = group.masters[2]!.store;
    const of = keySubject("viewed", { requestsPerMinute: 30, tokensPerMinute: 300 });
    expect(limits.views([of])).toMatchObject([{ requests: { limit: 10 }, tokens: { limit: 100 } }]);
    const free = keySubject("free", {});
    const ceiling = LIMIT_CEILING.requestsPerMinute;
    expect(limits.views([free])).toMatchObject([{ requests: { limit: ceiling } }]);
    expect(limits.budgetLeft(of)).toBeUndefined();
    expect(limits.budgetLeft(group.newBudget("unspent"))).toBe(1000);
  });

  it("a session is renewed once a second, outlasts its lifetime, and counts its calls", async () => {
    const of = keySubject("long", { concurrency: 3 });
    const running = await group.admitted(MASTERS, of);
    const before = group.masters.map(({ store }) => store.session.id);
    const client = group.newClient();
    await client.config("RESETSTAT");
    const sinceMs = performance.now();
    await delay(SESSION_MS + 500);
    const calls = Number(
      /cmdstat_evalsha:calls=(\d+)/.exec(await client.info("commandstats"))?.[1],
    );
    const seconds = (performance.now() - sinceMs) / 1_000;
    // Each renewal is one script, and one that keeps the budgets.
    expect(calls).toBeLessThanOrEqual(2 * MASTERS * (seconds + 1));
    if (group.masters.every(({ store }, i) => store.session.id === before[i])) {
      expect(await group.admitted(MASTERS, of)).toHaveLength(0);
    }
    for (const hold of running) hold.finish(NOTHING);
  });

  it("a Redis that hangs while no call comes: the renewal closes the session", async () => {
    group.redis.signal("SIGSTOP");
    await group.untilClosed();
    group.redis.signal("SIGCONT");
    await group.untilOpen();
  });

  it("a Redis that hangs: one call waits until the bound, later ones not at all", async () => {
    group.redis.signal("SIGSTOP");
    const of = keySubject("hangs", { requestsPerMinute: 1_000_000 });
    const waited: number[] = [];
    for (let i = 0; i < 5; i++) {
      const startMs = performance.now();
      await group.masters[0]!.store.limits.admit([of]);
      waited.push(performance.now() - startMs);
    }
    group.redis.signal("SIGCONT");
    // The machine may stall during one of the later ones.
    const [first = 0, ...later] = waited;
    expect(first).toBeLessThan(STORE_TIMEOUT_MS + 30_000);
    expect(later.sort((a, b) => a - b)[2]).toBeLessThan(STORE_TIMEOUT_MS / 2);
    // The times of calls that ended are counted, in seconds.
    const took = group.masters.flatMap((master) => master.took);
    expect(took.length).toBeGreaterThan(200);
    expect(Math.max(...took)).toBeLessThan(STORE_TIMEOUT_MS / 1000 + 30);
    await group.untilOpen();
    // Each end of a session was reported once, between two beginnings.
    for (const { turns, store } of group.masters) {
      expect(turns.length).toBeGreaterThan(10);
      expect(turns).toEqual(turns.map((_, i) => (i % 2 === 0 ? "opened" : "closed")));
      expect(store.session.failures).toBe(Math.floor(turns.length / 2));
    }
  });
});
