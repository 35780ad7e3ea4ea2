// holds: key-limits-redis
import { eventually } from "@heddle/base/testing/eventually";
import { hasRedis, REDIS_PROGRAM, RedisServer } from "@heddle/base/testing/redis-server";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RateLimiter } from "../../rate-limiter.ts";
import { EmbeddedLimits } from "../embedded-limits.ts";
import type {
  Amounts,
  Hold,
  LimitRefusal,
  LimitStore,
  Subject,
  SubjectView,
} from "../limit-store.ts";
import { OwnSpend } from "../own-spend.ts";
import { RedisStore } from "./redis-store.ts";

/** A run takes under a second, in which less than one request or token is refilled. */
const MOST_PER_MINUTE = 40;

const limits = fc.record(
  {
    requestsPerMinute: fc.integer({ min: 0, max: 12 }),
    tokensPerMinute: fc.integer({ min: 0, max: MOST_PER_MINUTE }),
    concurrency: fc.integer({ min: 0, max: 4 }),
    budget: fc.record({
      amount: fc.integer({ min: 0, max: 60 }),
      period: fc.constantFrom("day" as const, "month" as const, "total" as const),
    }),
  },
  { requiredKeys: [] },
);
const amounts = fc.record({
  tokens: fc.integer({ min: 0, max: 15 }),
  spend: fc.integer({ min: 0, max: 15 }),
});
const step = fc.oneof(
  fc.record({ act: fc.constant("admit" as const), of: fc.constantFrom([0], [1], [0, 1]) }),
  fc.record({
    act: fc.constantFrom("reserve" as const, "correct" as const, "finish" as const),
    at: fc.nat(),
    amounts,
  }),
  fc.record({ act: fc.constant("cancel" as const), at: fc.nat() }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** What a store answered to each step. */
async function outcomes(
  store: LimitStore,
  subjects: readonly Subject[],
  steps: readonly Step[],
): Promise<string[]> {
  const holds: { hold: Hold; isReserved: boolean }[] = [];
  const said: string[] = [];
  for (const each of steps) {
    if (each.act === "admit") {
      const hold = await store.admit(each.of.map((at) => subjects[at] as Subject));
      if (hold.ok) holds.push({ hold, isReserved: false });
      said.push(hold.ok ? `ok of ${hold.views().map(limitsIn).join(" and ")}` : refusalIn(hold));
      continue;
    }
    const open = holds[holds.length === 0 ? 0 : each.at % holds.length];
    if (open === undefined) continue;
    said.push(await changed(open, each));
    if (each.act === "cancel" || each.act === "finish") holds.splice(holds.indexOf(open), 1);
  }
  for (const { hold } of holds) hold.cancel();
  return said;
}

function limitsIn({ requests, tokens }: SubjectView): string {
  return `${requests.limit} and ${tokens.limit} a minute`;
}

function refusalIn({ ok, subject, limitedBy, limit, retryAfterMs }: LimitRefusal): string {
  const what = `${ok ? "ok" : "refused"} by ${subject.name} for ${limitedBy} above ${limit}`;
  // No limit that may be set is 0.
  if (limit === 0) return what;
  const isExact = retryAfterMs === undefined || limitedBy === "concurrency";
  return `${what}, again ${isExact ? `in ${retryAfterMs} ms` : later(retryAfterMs)}`;
}

/** What was used beyond a limit of one a minute is refilled within hours. */
function later(ms: number): string {
  return ms > 0 && ms < 1e7 ? "later" : `in ${ms} ms`;
}

async function changed(
  open: { hold: Hold; isReserved: boolean },
  each: Exclude<Step, { act: "admit" }>,
): Promise<string> {
  const { hold } = open;
  if (each.act === "cancel") hold.cancel();
  else if (each.act === "finish") hold.finish(each.amounts as Amounts);
  else if (each.act === "correct" && open.isReserved) hold.correct(each.amounts as Amounts);
  else if (each.act === "reserve" && !open.isReserved) {
    const refusal = await hold.reserve(each.amounts as Amounts);
    open.isReserved = refusal === undefined;
    return refusal ? refusalIn(refusal) : "reserved";
  }
  return each.act;
}

describe.skipIf(!hasRedis())(`limits in Redis and in memory (needs ${REDIS_PROGRAM})`, () => {
  let redis: RedisServer;
  let store: RedisStore;
  let client: Redis;
  let run = 0;

  beforeAll(async () => {
    redis = await RedisServer.start();
    const { port } = redis;
    store = redisStore(port);
    await eventually(() => store.session.id !== undefined, "Redis counts");
    client = new Redis({ port, host: "127.0.0.1" });
    // A script's first use goes twice to the server, and what ends a call may come after the next.
    const first = await store.limits.admit([
      { kind: "key", name: "first", limits: { concurrency: 9 } },
    ]);
    if (first.ok) first.cancel();
    await eventually(async () =>
      (await client.hvals((await client.keys("*first*"))[0] ?? "")).includes("0"),
    );
  });
  afterAll(async () => {
    store.session.close();
    client.disconnect();
    await redis.close();
  });

  it("the script and the embedded counter answer the same to any course of calls", async () => {
    let refused = 0;
    const property = fc.asyncProperty(
      fc.tuple(limits, limits),
      fc.array(step, { minLength: 5, maxLength: 40 }),
      async ([one, other], steps) => {
        run++;
        const subjects: Subject[] = [
          { kind: "key", name: `a${run}`, limits: one },
          { kind: "project", name: `b${run}`, limits: other },
        ];
        const expected = await outcomes(embedded(), subjects, steps);
        expect(await outcomes(store.limits, subjects, steps)).toEqual(expected);
        refused += expected.filter((said) => said.startsWith("refused")).length;
      },
    );
    await fc.assert(property, { numRuns: 600 });
    expect(refused).toBeGreaterThan(300);
  });

  it("every subject's key has a lifetime, far longer than masters need to keep it", async () => {
    const named = async (name: string, of: Subject["limits"]) => {
      const hold = await store.limits.admit([{ kind: "key", name, limits: of }]);
      if (hold.ok) {
        await hold.reserve({ tokens: 1, spend: 1 });
        hold.finish({ tokens: 1, spend: 1 });
      }
      const [key] = await client.keys(`*${name}*`);
      return client.pttl(key ?? "none");
    };
    const DAY_MS = 86_400_000;
    expect(await named("rate-only", { requestsPerMinute: 5 })).toBeGreaterThan(DAY_MS);
    const monthly = { amount: 9, period: "month" as const };
    expect(await named("monthly", { budget: monthly })).toBeGreaterThan(31 * DAY_MS);
    const total = { budget: { ...monthly, period: "total" as const } };
    expect(await named("for-ever", total)).toBeGreaterThan(31 * DAY_MS);
    expect(await named("for-ever", { requestsPerMinute: 5 })).toBeGreaterThan(DAY_MS);
  });

  it("a call of a key and its project has the rest of both", async () => {
    const both = [40, 20].map((requestsPerMinute) => ({
      kind: "key" as const,
      name: `both-${requestsPerMinute}`,
      limits: { requestsPerMinute },
    }));
    const hold = await store.limits.admit(both);
    if (!hold.ok) throw new Error(`refused by ${hold.limitedBy}`);
    expect(hold.views().map(({ requests }) => requests.remaining)).toEqual([39, 19]);
    hold.finish({ tokens: 0, spend: 0 });
  });

  it("a Redis that has forgotten the scripts gets them again, in the same session", async () => {
    const before = store.session.id;
    await client.call("SCRIPT", "FLUSH");
    const of = { kind: "key" as const, name: "flushed", limits: { concurrency: 1 } };
    const hold = await store.limits.admit([of]);
    expect([hold.ok, (await store.limits.admit([of])).ok]).toEqual([true, false]);
    expect(store.session.id).toBe(before);
  });
});

function parts() {
  const spend = new OwnSpend({ history: () => 0, wallNow: Date.now, maxSubjects: 10_000 });
  const limiter = () => new RateLimiter({ now: () => performance.now(), maxKeys: 10_000 });
  const local = () =>
    new EmbeddedLimits({ limiter: limiter(), spend, share: ({ limits: all }) => all });
  return { spend, limiter, local };
}

function embedded(): EmbeddedLimits {
  return parts().local();
}

function redisStore(port: number): RedisStore {
  const { spend, limiter, local } = parts();
  return new RedisStore({
    server: { url: `redis://127.0.0.1:${port}` },
    master: "master-0",
    local: local(),
    limiter: limiter(),
    spend,
    share: (all) => all,
    times: { timeoutMs: 5_000 },
    events: {
      budgeted: () => [],
      onTaken: () => undefined,
      onOpen: () => undefined,
      onClose: () => undefined,
    },
  });
}
