import { readFileSync } from "node:fs";
import { EmbeddedLimits } from "@heddle/auth/limits/embedded-limits";
import type { LimitStore, Subject } from "@heddle/auth/limits/limit-store";
import { OwnSpend } from "@heddle/auth/limits/own-spend";
import type { RedisStore } from "@heddle/auth/limits/redis/redis-store";
import { RateLimiter } from "@heddle/auth/rate-limiter";
import type { Limits } from "@heddle/contracts/limits";
import { MAX_KEYS } from "@heddle/control/apply";
import type { Logger } from "@heddle/observability/logger";
import type { OnApplicationShutdown } from "@nestjs/common";
import type { Registry } from "prom-client";
import type { MasterConfig } from "../../config/config.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { UsageBook } from "../../usage/usage-book.ts";
import { budgetedSubjects, CallLimiter } from "./call-limiter.ts";
import { LimitDivision } from "./limit-division.ts";
import { LimitMetrics } from "./limit-metrics.ts";

/** Keys, projects and models whose limits are counted at a time. */
const MAX_SUBJECTS = MAX_KEYS + 20_000;

export interface MasterLimitsOptions {
  readonly control: ControlPlane;
  readonly book: UsageBook;
  readonly config: Pick<MasterConfig, "limitsRedis" | "limitsRedisPasswordFile" | "masterId">;
  readonly registry: Registry;
  readonly logger: Logger;
}

/** This master's limits: in Redis where one is configured, otherwise in its memory. */
export class MasterLimits implements OnApplicationShutdown {
  readonly limiter: CallLimiter;
  readonly #options: MasterLimitsOptions;
  readonly #metrics: LimitMetrics;
  readonly #spend: OwnSpend;
  readonly #division: LimitDivision;
  #redis: RedisStore | undefined;

  /** Loads the client of Redis only where one is configured: it takes 15 ms of a start. */
  static async open(options: MasterLimitsOptions): Promise<MasterLimits> {
    if (options.config.limitsRedis === undefined) return new MasterLimits(options);
    const redis = await import("@heddle/auth/limits/redis/redis-store");
    return new MasterLimits(options, redis.RedisStore);
  }

  private constructor(options: MasterLimitsOptions, Store?: typeof RedisStore) {
    this.#options = options;
    const { control, book, registry } = options;
    const { group, state } = control;
    const history = book.costOf.bind(book);
    this.#spend = new OwnSpend({ history, wallNow: Date.now, maxSubjects: MAX_SUBJECTS });
    this.#division = new LimitDivision({ now, group: group && (() => group.roster()) });
    this.#metrics = new LimitMetrics(registry);
    this.limiter = new CallLimiter({
      store: this.#openStore(Store),
      division: this.#division,
      state: () => state,
      onRefused: (refusal) => this.#metrics.refused(refusal),
    });
  }

  onApplicationShutdown(): void {
    this.#redis?.session.close();
  }

  #openStore(Store: typeof RedisStore | undefined): LimitStore {
    const { config, control, registry } = this.#options;
    const share = (limits: Limits) => this.#division.shareOf(limits);
    const local = new EmbeddedLimits({
      limiter: newLimiter(),
      spend: this.#spend,
      share: (subject: Subject) => share(subject.limits),
    });
    if (!Store || config.limitsRedis === undefined) return local;
    this.#redis = new Store({
      server: {
        url: config.limitsRedis,
        password: passwordIn(config.limitsRedisPasswordFile),
      },
      master: config.masterId,
      local,
      limiter: newLimiter(),
      spend: this.#spend,
      share,
      events: {
        budgeted: () => budgetedSubjects(control.state),
        onTaken: (seconds) => this.#metrics.taken(seconds),
        onOpen: () => this.#log("limits are counted in Redis, over all masters"),
        onClose: (reason) => this.#closed(reason),
      },
    });
    const { session, limits } = this.#redis;
    this.#metrics.exposeStore(registry, () => session.id !== undefined);
    control.onApplied((command) => {
      if (command?.type === "limits.set") limits.limitsChanged();
    });
    return limits;
  }

  #log(message: string): void {
    this.#options.logger.info({}, message);
  }

  #closed(reason: string): void {
    this.#metrics.failed();
    const message = "Redis is gone: this master counts its share of the limits until it is back";
    this.#options.logger.warn({ reason }, message);
  }
}

const now = () => performance.now();

function newLimiter(): RateLimiter {
  return new RateLimiter({ now, maxKeys: MAX_SUBJECTS });
}

function passwordIn(file: string | undefined): string | undefined {
  return file === undefined ? undefined : readFileSync(file, "utf8").trim();
}
