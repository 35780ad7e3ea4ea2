import type { Limits } from "@heddle/contracts/limits";
import type { RateLimiter } from "../../rate-limiter.ts";
import { EmbeddedLimits } from "../embedded-limits.ts";
import type { Subject } from "../limit-store.ts";
import type { OwnSpend } from "../own-spend.ts";
import { RedisLimits } from "./redis-limits.ts";
import { RedisSession } from "./redis-session.ts";

const CALL_TIMEOUT_MS = 100;
/** How often masters keep the budgets of Redis: far more often than any expires. */
const KEEP_EVERY_MS = 3_600_000;

export interface RedisStoreOptions {
  readonly server: { readonly url: string; readonly password?: string | undefined };
  /** This master's name. */
  readonly master: string;
  /** For calls without limits. */
  readonly local: EmbeddedLimits;
  /** The limiter of calls while Redis is unavailable; another than that of `local`. */
  readonly limiter: RateLimiter;
  readonly spend: OwnSpend;
  readonly share: (limits: Limits) => Limits;
  readonly events: RedisStoreEvents;
  readonly times?: {
    /** The longest that a call waits for Redis before this master counts alone. */
    readonly timeoutMs?: number;
    readonly keepEveryMs?: number;
  };
}

export interface RedisStoreEvents {
  /** All subjects with budgets. */
  readonly budgeted: () => Iterable<Subject>;
  readonly onTaken: (seconds: number) => void;
  readonly onOpen: () => void;
  readonly onClose: (reason: string) => void;
}

/** Limits in Redis with what counts them while it is gone. */
export class RedisStore {
  readonly limits: RedisLimits;
  readonly session: RedisSession;

  constructor(options: RedisStoreOptions) {
    const { server, master, limiter, spend, share, local, events } = options;
    const alone: EmbeddedLimits = new EmbeddedLimits({
      limiter,
      spend,
      share: (subject) => this.limits.shareAlone(subject),
    });
    const { budgeted, onTaken } = events;
    this.limits = new RedisLimits({ local, alone, spend, share, budgeted, observe: onTaken });
    this.session = new RedisSession({
      ...server,
      master,
      timeoutMs: options.times?.timeoutMs ?? CALL_TIMEOUT_MS,
      keepEveryMs: options.times?.keepEveryMs ?? KEEP_EVERY_MS,
      counter: this.limits,
      onOpen: () => {
        this.limits.opened();
        events.onOpen();
      },
      onClose: (reason) => {
        alone.empty();
        events.onClose(reason);
      },
    });
    this.limits.use(this.session);
  }
}
