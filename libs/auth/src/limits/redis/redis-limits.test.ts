// holds: key-limits-redis
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { subjectId } from "@heddle/contracts/limits";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { LIMIT_CEILING, RateLimiter, shareOfLimits } from "../../rate-limiter.ts";
import { EmbeddedLimits } from "../embedded-limits.ts";
import { type Hold, type Subject } from "../limit-store.ts";
import { OwnSpend } from "../own-spend.ts";
import { subjectKey } from "./redis-session.ts";
import { RedisStore } from "./redis-store.ts";

/** A real redis-server: its path, or that of the Debian package. */
const PROGRAM = process.env["HEDDLE_REDIS_SERVER"] ?? "redis-server";
const isThere = spawnSync(PROGRAM, ["--version"]).status === 0;

const MASTERS = 3;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const NOTHING = { tokens: 0, spend: 0 };
const BUDGET: Subject = {
  kind: "key",
  name: "budget",
  limits: { budget: { amount: 1000, period: "total" } },
};
/** The budgets that are set. */
const budgets = [BUDGET];
const subject = (name: string, limits: Subject["limits"]): Subject => ({
  kind: "key",
  name,
  limits,
});

describe.skipIf(!isThere)(`limits in Redis (needs ${PROGRAM})`, () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-redis-"));
  let port = 0;
  let redis: ChildProcess;
  const masters: ReturnType<typeof newMaster>[] = [];
  const clients: Redis[] = [];

  function startRedis(): ChildProcess {
    const flags = ["--port", String(port), "--bind", "127.0.0.1", "--requirepass", "secret"];
    const memory = ["--save", "", "--appendonly", "no", "--dir", folder];
    return spawn(PROGRAM, [...flags, ...memory], { stdio: "ignore" });
  }

  async function killRedis(): Promise<void> {
    const exited = once(redis, "exit");
    redis.kill("SIGKILL");
    await exited;
  }

  /** Makes the calls without Redis, then starts an empty one. */
  async function withoutRedis(calls: () => Promise<void>): Promise<void> {
    await killRedis();
    try {
      await eventually(isClosed, "the masters count alone");
      await calls();
    } finally {
      redis = startRedis();
      await eventually(isOpen, "the masters count in Redis again");
    }
  }

  function newBudget(name: string): Subject {
    const of = subject(name, BUDGET.limits);
    budgets.push(of);
    return of;
  }

  function newClient(): Redis {
    const client = new Redis({ port, host: "127.0.0.1", password: "secret" });
    clients.push(client);
    return client;
  }

  const isOpen = () => masters.every(({ store }) => store.session.id !== undefined);
  const isClosed = () => masters.every(({ store }) => store.session.id === undefined);

  beforeAll(async () => {
    port = await freePort();
    redis = startRedis();
    for (let rank = 0; rank < MASTERS; rank++) masters.push(newMaster(rank, port));
    await eventually(isOpen, "the masters count in Redis");
  });
  afterAll(async () => {
    for (const { store } of masters) store.session.close();
    for (const client of clients) client.disconnect();
    await killRedis();
    rmSync(folder, { recursive: true });
  });

  /** Calls at once, spread over the masters: those that were admitted. */
  async function admitted(calls: number, of: Subject): Promise<Hold[]> {
    const admitting = Array.from({ length: calls }, async (_, i) => {
      const hold = await masters[i % MASTERS]!.store.limits.admit([of]);
      return hold.ok ? [hold] : [];
    });
    return (await Promise.all(admitting)).flat();
  }

  /** One call that reserves 20 and spends 10; whether it passed. */
  async function spendTen(master: number, of = BUDGET): Promise<boolean> {
    const hold = await masters[master]!.store.limits.admit([of]);
    if (!hold.ok) return false;
    if (await hold.reserve({ tokens: 20, spend: 20 })) {
      hold.cancel();
      return false;
    }
    hold.finish({ tokens: 10, spend: 10 });
    return true;
  }

  const spent = (of = BUDGET) => masters.reduce((sum, { spend }) => sum + spend.of(of), 0);
  const keyOf = (of: Subject) => subjectKey(subjectId(of));

  it("new connections to a Redis that kept its data: rates stay as they were", async () => {
    const before = masters.map(({ store }) => store.session.id);
    await newClient().call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    const isNew = () => isOpen() && masters.every(({ store }, i) => store.session.id !== before[i]);
    await eventually(isNew, "the masters count in Redis again", 30_000);
    const holds = await admitted(60, subject("interrupted", { requestsPerMinute: 60 }));
    expect(holds.length).toBeGreaterThanOrEqual(60);
    for (const hold of holds) hold.finish(NOTHING);
  });

  it("200 calls at once over three masters on a limit of 50: exactly 50 pass", async () => {
    const sinceMs = performance.now();
    const holds = await admitted(200, subject("requests", { requestsPerMinute: 50 }));
    expect(holds.length).toBeGreaterThanOrEqual(50);
    // What refills meanwhile lets some more pass.
    expect(holds.length).toBeLessThanOrEqual(51 + (performance.now() - sinceMs) / 1_200);
    for (const hold of holds) hold.finish(NOTHING);
  });

  it.each([7, 50, 60])("the first call of a limit of %i leaves the others", async (limit) => {
    const [hold] = await admitted(1, subject(`first-${limit}`, { requestsPerMinute: limit }));
    expect(hold?.views()).toMatchObject([{ requests: { limit, remaining: limit - 1 } }]);
    hold?.finish(NOTHING);
  });

  it("calls at once: as many as the limit, and again after they have ended", async () => {
    for (let round = 0; round < 2; round++) {
      const holds = await admitted(100, subject("calls", { concurrency: 50 }));
      expect(holds).toHaveLength(50);
      for (const hold of holds) hold.finish(NOTHING);
      await delay(100);
    }
  });

  it("tokens: reserved once, corrected by what was used", async () => {
    const of = subject("tokens", { tokensPerMinute: 1000 });
    const [hold] = await admitted(1, of);
    expect(await hold?.reserve({ tokens: 900, spend: 0 })).toBeUndefined();
    hold?.finish({ tokens: 100, spend: 0 });
    await delay(100);
    const [second] = await admitted(1, of);
    expect(await second?.reserve({ tokens: 850, spend: 0 })).toBeUndefined();
    const [third] = await admitted(1, of);
    const refusal = await third?.reserve({ tokens: 850, spend: 0 });
    expect(refusal).toMatchObject({ limitedBy: "tokens", limit: 1000 });
    expect(refusal?.retryAfterMs).toBeGreaterThan(10_000);
  });

  it("after an outage every rate begins empty, so no limit is passed", async () => {
    const of = subject("outage", { requestsPerMinute: 60 });
    expect((await admitted(60, of)).length).toBeGreaterThanOrEqual(60);
    await killRedis();
    await eventually(isClosed, "the masters count alone");
    const sinceMs = performance.now();
    let passed = (await admitted(60, of)).length;
    redis = startRedis();
    await eventually(isOpen, "the masters count in Redis again");
    passed += (await admitted(60, of)).length;
    expect(passed).toBeLessThanOrEqual((performance.now() - sinceMs) / 1000 + 1);
  });

  it("a Redis that lost its data while no call came: every rate begins empty", async () => {
    const of = subject("lost", { requestsPerMinute: 60 });
    await killRedis();
    await eventually(isClosed, "the masters count alone");
    const sinceMs = performance.now();
    redis = startRedis();
    await eventually(isOpen, "the masters count in Redis again");
    // All masters have had time to send it their spend.
    expect(performance.now() - sinceMs).toBeGreaterThan(1_500);
    const passed = (await admitted(60, of)).length;
    expect(passed).toBeLessThanOrEqual((performance.now() - sinceMs) / 1000 + 1);
  });

  it("rates: a call that began before Redis lost its data gives nothing back", async () => {
    // A token each millisecond.
    const of = subject("outlived", { requestsPerMinute: 60_000, tokensPerMinute: 60_000 });
    // After an outage the rate begins empty, and refills.
    const takeTen = async () => {
      let hold: Hold | undefined;
      await eventually(async () => {
        [hold] = await admitted(1, of);
        return hold !== undefined && (await hold.reserve({ tokens: 10, spend: 0 })) === undefined;
      }, "Redis has counted ten tokens");
      return hold;
    };
    const before = await takeTen();
    await withoutRedis(async () => {});
    await takeTen();
    const client = newClient();
    const counted = await client.hmget(keyOf(of), "r", "t");
    before?.cancel();
    // One connection keeps the order.
    await admitted(1, subject("behind", { requestsPerMinute: 60 }));
    expect(await client.hmget(keyOf(of), "r", "t")).toEqual(counted);
  });

  it("a Redis that lost its data while no call came: it learns what masters spent", async () => {
    const many = Array.from({ length: 120 }, (_, n) => newBudget(`many-${n}`));
    for (const of of many) expect(await spendTen(0, of)).toBe(true);
    await killRedis();
    await eventually(isClosed, "the masters count alone", 10_000);
    redis = startRedis();
    await eventually(isOpen, "the masters count in Redis again", 30_000);
    const client = newClient();
    const known = many.map((of) => client.hget(keyOf(of), "s:total:master-0"));
    expect(new Set(await Promise.all(known))).toEqual(new Set(["10"]));
    for (const of of many) await client.pexpire(keyOf(of), MINUTE_MS);
    const lifetimes = () => Promise.all(many.map((of) => client.pttl(keyOf(of))));
    const areKept = async () => Math.min(...(await lifetimes())) > 31 * DAY_MS;
    await eventually(areKept, "the masters keep all of them");
    budgets.splice(-many.length);
  });

  it("calls at once: those that run while Redis loses its data count in the next one", async () => {
    const of = subject("running", { concurrency: 50 });
    const running = await admitted(30, of);
    await killRedis();
    await eventually(isClosed, "the masters count alone");
    redis = startRedis();
    await eventually(isOpen, "the masters count in Redis again");
    // The first call of each master reports to the new Redis what it runs.
    running.push(...(await admitted(MASTERS, of)));
    running.push(...(await admitted(50, of)));
    expect(running).toHaveLength(50);
    for (const hold of running) hold.finish(NOTHING);
  });

  it("a budget: 100 calls at once on 50, Redis killed and restarted, never overspent", async () => {
    const holds = await admitted(100, BUDGET);
    const refusals = await Promise.all(
      holds.map((hold) => hold.reserve({ tokens: 20, spend: 20 })),
    );
    expect(refusals.filter((refusal) => !refusal)).toHaveLength(50);
    for (const [at, hold] of holds.entries()) {
      if (refusals[at]) hold.cancel();
      else hold.finish({ tokens: 10, spend: 10 });
    }
    expect(spent()).toBe(500);
    await delay(100);
    for (let i = 0; i < 9; i++) expect(await spendTen(i % MASTERS)).toBe(true);
    await killRedis();
    await eventually(isClosed, "the masters count alone");
    let alone = 0;
    for (let i = 0; i < 60; i++) if (await spendTen(i % MASTERS)) alone++;
    expect(alone).toBeGreaterThan(3);
    expect(spent()).toBeLessThanOrEqual(1000);
    redis = startRedis();
    await eventually(isOpen, "the masters count in Redis again");
    for (let i = 0; i < 60; i++) await spendTen(i % MASTERS);
    // The last 10 cannot be reserved, since a call reserves 20.
    expect(spent()).toBe(990);
  });

  it("a budget: what a better estimate of a call frees is there for others", async () => {
    const of = newBudget("corrected");
    const [first] = await admitted(1, of);
    expect(await first?.reserve({ tokens: 5, spend: 1000 })).toBeUndefined();
    expect(spent(of)).toBe(1000);
    first?.correct({ tokens: 5, spend: 100 });
    const [second] = await admitted(1, of);
    expect(await second?.reserve({ tokens: 5, spend: 900 })).toBeUndefined();
    for (const hold of [first, second]) hold?.finish(NOTHING);
    // A call that has ended changes nothing more.
    first?.correct({ tokens: 5, spend: 1000 });
    const [third] = await admitted(1, of);
    expect(await third?.reserve({ tokens: 5, spend: 1000 })).toBeUndefined();
    third?.finish(NOTHING);
  });

  it("a budget that one master spent: without Redis the others spend what is left", async () => {
    const of = newBudget("uneven");
    for (let i = 0; i < 90; i++) expect(await spendTen(0, of)).toBe(true);
    for (const master of [1, 2]) expect(await spendTen(master, of)).toBe(true);
    expect(await spendTen(2, newBudget("another"))).toBe(true);
    expect(masters[2]!.store.limits.budgetLeft(of)).toBe(80);
    await killRedis();
    await eventually(isClosed, "the masters count alone", 10_000);
    let alone = 0;
    for (let i = 0; i < 60; i++) if (await spendTen(1 + (i % 2), of)) alone++;
    // Of a budget that no call has named, each has its share.
    const unseen = newBudget("never-seen");
    expect(masters.map(({ store }) => store.limits.budgetLeft(unseen))).toEqual([334, 333, 333]);
    expect(await spendTen(1, unseen)).toBe(true);
    expect(masters[1]!.store.limits.budgetLeft(unseen)).toBe(323);
    redis = startRedis();
    await eventually(isOpen, "the masters count in Redis again", 30_000);
    expect(alone).toBeGreaterThan(0);
    expect(spent(of)).toBeLessThanOrEqual(1000);
  });

  it("a budget that Redis has lost: every master sends its part again", async () => {
    const of = newBudget("lost-budget");
    for (let i = 0; i < 90; i++) expect(await spendTen(i % MASTERS, of)).toBe(true);
    const client = newClient();
    expect(await client.del(keyOf(of))).toBe(1);
    for (let i = 0; i < 60; i++) await spendTen(i % MASTERS, of);
    expect(spent(of)).toBeLessThanOrEqual(1000);
    await eventually(isOpen, "the masters count in Redis again");
    for (let i = 0; i < 60; i++) await spendTen(i % MASTERS, of);
    expect(spent(of)).toBe(990);
  });

  it("masters keep a total budget in Redis as long as it is set", async () => {
    const of = newBudget("kept");
    const removed = newBudget("removed");
    for (const each of [of, removed]) expect(await spendTen(0, each)).toBe(true);
    budgets.splice(budgets.indexOf(removed), 1);
    const client = newClient();
    for (const each of [of, removed]) await client.pexpire(keyOf(each), MINUTE_MS);
    const lifetime = (each: Subject) => client.pttl(keyOf(each));
    await eventually(async () => (await lifetime(of)) > 31 * DAY_MS, "a master keeps it");
    expect(await lifetime(removed)).toBeLessThanOrEqual(MINUTE_MS);
    expect(await client.hget(keyOf(of), "s:total:master-0")).toBe("10");
  });

  it("a budget that is taken away and set again: what was spent meanwhile counts", async () => {
    const of = newBudget("again");
    const changed = () => {
      for (const { store } of masters) store.limits.limitsChanged();
    };
    for (let i = 0; i < 30; i++) expect(await spendTen(i % MASTERS, of)).toBe(true);
    budgets.splice(budgets.indexOf(of), 1);
    changed();
    const free = { ...of, limits: { requestsPerMinute: 1_000_000 } };
    for (let i = 0; i < 30; i++) expect(await spendTen(i % MASTERS, free)).toBe(true);
    // As it would be after the lifetime of a subject without a budget.
    await newClient().del(keyOf(of));
    budgets.push(of);
    changed();
    let passed = 0;
    for (let i = 0; i < 60; i++) if (await spendTen(i % MASTERS, of)) passed++;
    expect(isOpen()).toBe(true);
    expect(passed).toBe(39);
    expect(spent(of)).toBe(990);
  });

  it("a call that Redis has admitted continues without it, within this master's share", async () => {
    const of = subject("continues", { tokensPerMinute: 900, ...newBudget("continues").limits });
    const [hold] = await admitted(1, of);
    const { store, spend } = masters[0]!;
    await withoutRedis(async () => {
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
    expect(await spendTen(0, subject("continues", BUDGET.limits))).toBe(true);
    expect(await newClient().hget(keyOf(of), "s:total:master-0")).toBe("20");
  });

  it("a call that ends while it reserves gives it back, and ends once", async () => {
    const of = subject("ends", { concurrency: 2, ...newBudget("ends").limits });
    const [first, second] = [...(await admitted(1, of)), ...(await admitted(1, of))];
    const reserving = first?.reserve({ tokens: 5, spend: 1000 });
    for (let time = 0; time < 2; time++) first?.cancel();
    first?.finish({ tokens: 5, spend: 1000 });
    expect(await reserving).toBeUndefined();
    expect(spent(of)).toBe(0);
    const isFree = async () => (await second?.reserve({ tokens: 5, spend: 1000 })) === undefined;
    await eventually(isFree, "the budget is there for others");
    expect(await admitted(5, of)).toHaveLength(1);
    second?.finish(NOTHING);
  });

  it("views and budgets without a call are those of this master", async () => {
    const { limits } = masters[2]!.store;
    const of = subject("viewed", { requestsPerMinute: 30, tokensPerMinute: 300 });
    expect(limits.views([of])).toMatchObject([{ requests: { limit: 10 }, tokens: { limit: 100 } }]);
    const free = subject("free", {});
    const ceiling = LIMIT_CEILING.requestsPerMinute;
    expect(limits.views([free])).toMatchObject([{ requests: { limit: ceiling } }]);
    expect(limits.budgetLeft(of)).toBeUndefined();
    expect(limits.budgetLeft(newBudget("unspent"))).toBe(1000);
  });

  it("a new day's budget is whole, with Redis and without it", async () => {
    const of = subject("daily", { budget: { amount: 300, period: "day" } });
    for (let i = 0; i < 25; i++) expect(await spendTen(0, of)).toBe(true);
    expect(await spendTen(1, of)).toBe(true);
    const left = (master: number) => masters[master]!.store.limits.budgetLeft(of);
    expect(left(0)).toBe(50);
    expect(left(1)).toBe(40);
    await withoutRedis(async () => {
      expect(left(1)).toBe(13);
      wall.shiftMs = DAY_MS;
      expect(left(1)).toBe(100);
    });
    expect(left(0)).toBe(300);
    wall.shiftMs = 0;
  });

  it("a session is renewed once a second, outlasts its lifetime, and counts its calls", async () => {
    const of = subject("long", { concurrency: 3 });
    const running = await admitted(MASTERS, of);
    const before = masters.map(({ store }) => store.session.id);
    const client = newClient();
    await client.config("RESETSTAT");
    const sinceMs = performance.now();
    await delay(SESSION_MS + 500);
    const calls = Number(
      /cmdstat_evalsha:calls=(\d+)/.exec(await client.info("commandstats"))?.[1],
    );
    const seconds = (performance.now() - sinceMs) / 1_000;
    // Each renewal is one script, and one that keeps the budgets.
    expect(calls).toBeLessThanOrEqual(2 * MASTERS * (seconds + 1));
    if (masters.every(({ store }, i) => store.session.id === before[i])) {
      expect(await admitted(MASTERS, of)).toHaveLength(0);
    }
    for (const hold of running) hold.finish(NOTHING);
  });

  it("a Redis that hangs while no call comes: the renewal closes the session", async () => {
    redis.kill("SIGSTOP");
    await eventually(isClosed, "the masters count alone");
    redis.kill("SIGCONT");
    await eventually(isOpen, "the masters count in Redis again");
  });

  it("a Redis that hangs: one call waits until the bound, later ones not at all", async () => {
    redis.kill("SIGSTOP");
    const of = subject("hangs", { requestsPerMinute: 1_000_000 });
    const waited: number[] = [];
    for (let i = 0; i < 5; i++) {
      const startMs = performance.now();
      await masters[0]!.store.limits.admit([of]);
      waited.push(performance.now() - startMs);
    }
    redis.kill("SIGCONT");
    // The machine may stall during one of the later ones.
    const [first = 0, ...later] = waited;
    expect(first).toBeLessThan(TIMEOUT_MS + 30_000);
    expect(later.sort((a, b) => a - b)[2]).toBeLessThan(TIMEOUT_MS / 2);
    // The times of calls that ended are counted, in seconds.
    const took = masters.flatMap((master) => master.took);
    expect(took.length).toBeGreaterThan(200);
    expect(Math.max(...took)).toBeLessThan(TIMEOUT_MS / 1000 + 30);
    await eventually(isOpen, "the masters count in Redis again");
    // Each end of a session was reported once, between two beginnings.
    for (const { turns, store } of masters) {
      expect(turns.length).toBeGreaterThan(10);
      expect(turns).toEqual(turns.map((_, i) => (i % 2 === 0 ? "opened" : "closed")));
      expect(store.session.failures).toBe(Math.floor(turns.length / 2));
    }
  });
});

/** How long Redis counts the calls of a master that has gone. */
const SESSION_MS = 10_000;
/** What the masters' calendar is ahead. */
const wall = { shiftMs: 0 };
/** Longer than a master's, so that a loaded machine does not end the session of a test. */
const TIMEOUT_MS = 3_000;

function newMaster(rank: number, port: number) {
  const now = () => performance.now();
  const spend = new OwnSpend({
    history: () => 0,
    wallNow: () => Date.now() + wall.shiftMs,
    maxSubjects: 1000,
  });
  const share = (limits: Subject["limits"]) => shareOfLimits(limits, { rank, count: MASTERS });
  const limiter = () => new RateLimiter({ now, maxKeys: 1000 });
  const took: number[] = [];
  const turns: string[] = [];
  const store = new RedisStore({
    server: { url: `redis://127.0.0.1:${port}`, password: "secret" },
    master: `master-${rank}`,
    local: new EmbeddedLimits({ limiter: limiter(), spend, share: (of) => share(of.limits) }),
    limiter: limiter(),
    spend,
    share,
    times: { timeoutMs: TIMEOUT_MS, keepEveryMs: 1 },
    events: {
      budgeted: () => budgets,
      onTaken: (seconds) => took.push(seconds),
      onOpen: () => turns.push("opened"),
      onClose: () => turns.push("closed"),
    },
  });
  return { store, spend, took, turns };
}
