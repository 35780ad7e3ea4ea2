import { eventually } from "@heddle/base/testing/eventually";
import { RedisServer } from "@heddle/base/testing/redis-server";
import { subjectId } from "@heddle/contracts/limits";
import { Redis } from "ioredis";
import { RateLimiter, shareOfLimits } from "../../../rate-limiter.ts";
import { EmbeddedLimits } from "../../embedded-limits.ts";
import type { Hold, Subject } from "../../limit-store.ts";
import { OwnSpend } from "../../own-spend.ts";
import { subjectKey } from "../redis-session.ts";
import { RedisStore } from "../redis-store.ts";

export const MASTERS = 3;
/** Longer than a master's, so that a loaded machine does not end the session of a test. */
export const STORE_TIMEOUT_MS = 3_000;
const PASSWORD = "secret";

export const keySubject = (name: string, limits: Subject["limits"]): Subject => ({
  kind: "key",
  name,
  limits,
});

/** What three masters count in a real Redis, by calls of the tests. */
export class LimitMasters {
  /** The total of a subject with `budget`. */
  readonly budget = keySubject("budget", { budget: { amount: 1000, period: "total" } });
  /** The budgets that are set. */
  readonly budgets: Subject[] = [this.budget];
  /** What the masters' calendar is ahead. */
  readonly calendar = { aheadMs: 0 };
  readonly redis: RedisServer;
  readonly masters: readonly ReturnType<typeof newMaster>[];
  readonly #clients: Redis[] = [];

  private constructor(redis: RedisServer) {
    this.redis = redis;
    this.masters = Array.from({ length: MASTERS }, (_, rank) => newMaster(rank, this));
  }

  static async start(): Promise<LimitMasters> {
    const group = new LimitMasters(await RedisServer.start(PASSWORD));
    await group.untilOpen();
    return group;
  }

  async close(): Promise<void> {
    for (const { store } of this.masters) store.session.close();
    for (const client of this.#clients) client.disconnect();
    await this.redis.close();
  }

  get isOpen(): boolean {
    return this.masters.every(({ store }) => store.session.id !== undefined);
  }

  untilOpen(timeoutMs?: number): Promise<void> {
    return eventually(() => this.isOpen, "the masters count in Redis", timeoutMs);
  }

  untilClosed(timeoutMs?: number): Promise<void> {
    const isClosed = () => this.masters.every(({ store }) => store.session.id === undefined);
    return eventually(isClosed, "the masters count alone", timeoutMs);
  }

  /** Makes the calls without Redis, then starts an empty one. */
  async withoutRedis(calls: () => Promise<void> = async () => {}): Promise<void> {
    await this.redis.kill();
    try {
      await this.untilClosed();
      await calls();
    } finally {
      this.redis.restart();
      await this.untilOpen();
    }
  }

  newBudget(name: string): Subject {
    const of = keySubject(name, this.budget.limits);
    this.budgets.push(of);
    return of;
  }

  newClient(): Redis {
    const client = new Redis({ port: this.redis.port, host: "127.0.0.1", password: PASSWORD });
    this.#clients.push(client);
    return client;
  }

  keyOf(of: Subject): string {
    return subjectKey(subjectId(of));
  }

  /** Calls at once, spread over the masters: those that were admitted. */
  async admitted(calls: number, of: Subject): Promise<Hold[]> {
    const admitting = Array.from({ length: calls }, async (_, i) => {
      const hold = await this.masters[i % MASTERS]!.store.limits.admit([of]);
      return hold.ok ? [hold] : [];
    });
    return (await Promise.all(admitting)).flat();
  }

  /** One call that reserves 20 and spends 10; whether it passed. */
  async spendTen(master: number, of = this.budget): Promise<boolean> {
    const hold = await this.masters[master]!.store.limits.admit([of]);
    if (!hold.ok) return false;
    if (await hold.reserve({ tokens: 20, spend: 20 })) {
      hold.cancel();
      return false;
    }
    hold.finish({ tokens: 10, spend: 10 });
    return true;
  }

  spent(of = this.budget): number {
    return this.masters.reduce((sum, { spend }) => sum + spend.of(of), 0);
  }
}

function newMaster(rank: number, { redis, budgets, calendar }: LimitMasters) {
  const now = () => performance.now();
  const spend = new OwnSpend({
    history: () => 0,
    wallNow: () => Date.now() + calendar.aheadMs,
    maxSubjects: 1000,
  });
  const share = (limits: Subject["limits"]) => shareOfLimits(limits, { rank, count: MASTERS });
  const limiter = () => new RateLimiter({ now, maxKeys: 1000 });
  const took: number[] = [];
  const turns: string[] = [];
  const store = new RedisStore({
    server: { url: `redis://127.0.0.1:${redis.port}`, password: PASSWORD },
    master: `master-${rank}`,
    local: new EmbeddedLimits({ limiter: limiter(), spend, share: (of) => share(of.limits) }),
    limiter: limiter(),
    spend,
    share,
    times: { timeoutMs: STORE_TIMEOUT_MS, keepEveryMs: 1 },
    events: {
      budgeted: () => budgets,
      onTaken: (seconds) => took.push(seconds),
      onOpen: () => turns.push("opened"),
      onClose: () => turns.push("closed"),
    },
  });
  return { store, spend, took, turns };
}
