import { createHash, randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { BEGIN, EMPTY, KEEP, RENEW, SETTLE, TAKE } from "./limit-scripts.ts";

/** How long the calls of a master that has gone count. */
const SESSION_MS = 10_000;
const RENEW_MS = 1_000;
const PROBE_MS = 250;
/** After Redis has lost its data all masters send it their spend before one relies on it. */
const GRACE_MS = 1_500;
/** A command outside the path of calls. */
const BACKGROUND_MS = 1_000;

/** What counts in a session. */
export interface SessionCounter {
  /** Sends a new session what this master knows, before calls use it. */
  announce(session: string): Promise<void>;
  /** Keeps Redis from forgetting what the open session knows. */
  keep(session: string): Promise<void>;
  /** Whether calls were admitted without Redis since the last session. */
  readonly hasAdmittedAlone: boolean;
}

export interface RedisSessionOptions {
  readonly url: string;
  readonly password?: string | undefined;
  /** This master's name. */
  readonly master: string;
  /** The longest that a call waits for Redis. */
  readonly timeoutMs: number;
  /** How often the budgets in Redis are kept. */
  readonly keepEveryMs: number;
  readonly counter: SessionCounter;
  readonly onOpen: () => void;
  /** Called once when calls are counted without Redis from now on. */
  readonly onClose: (reason: string) => void;
}

const GROUP = "heddle:{limits}:group";

/** The key of a subject's hash; all are in one slot of a Redis cluster. */
export function subjectKey(id: string): string {
  return `heddle:{limits}:${id}`;
}

/**
 * This master's session with Redis. It is open while Redis answers in time; the first failure closes
 * it, and a probe in the background opens another.
 */
export class RedisSession {
  readonly #options: RedisSessionOptions;
  readonly #redis: Redis;
  readonly #timer: NodeJS.Timeout;
  #id: string | undefined;
  #begun: string | undefined;
  /** When the data in Redis was created; another time means that it was lost. */
  #group: string | undefined;
  #isProbing = false;
  #renewedAtMs = 0;
  #keptAtMs = 0;
  #hasEnded = false;
  failures = 0;

  constructor(options: RedisSessionOptions) {
    this.#options = options;
    const { url, password } = options;
    this.#redis = new Redis(url, {
      ...(password !== undefined && { password }),
      enableOfflineQueue: false,
      enableAutoPipelining: true,
      maxRetriesPerRequest: 0,
      connectTimeout: BACKGROUND_MS,
      retryStrategy: () => PROBE_MS,
    });
    // Each failed attempt to connect emits one; the state is what counts.
    this.#redis.on("error", () => undefined);
    this.#redis.on("close", () => this.#close("the connection was closed"));
    this.#timer = setInterval(() => void this.#tend(), PROBE_MS);
    this.#timer.unref();
  }

  /** The present session; undefined while it is not open. */
  get id(): string | undefined {
    return this.#id;
  }

  /** The session that is open or will be; it counts what this master does. */
  get begun(): string | undefined {
    return this.#begun;
  }

  /** Runs a script for a call: rejects in time, and closes the session if Redis fails. */
  async run(session: string, script: string, keys: readonly string[], args: readonly Argument[]) {
    try {
      return await this.#eval(script, keys, [session, ...args], this.#options.timeoutMs);
    } catch (error) {
      if (session === this.#id) this.#close((error as Error).message);
      throw error;
    }
  }

  close(): void {
    this.#hasEnded = true;
    clearInterval(this.#timer);
    this.#id = undefined;
    this.#redis.disconnect();
  }

  /** Runs a script outside the path of calls, whether or not the session is open yet. */
  async announce(
    session: string,
    script: string,
    keys: readonly string[],
    args: readonly Argument[],
  ): Promise<void> {
    await this.#eval(script, keys, [session, ...args], BACKGROUND_MS);
  }

  async #tend(): Promise<void> {
    if (this.#isProbing || this.#hasEnded || this.#redis.status !== "ready") return;
    this.#isProbing = true;
    try {
      if (this.#id === undefined) await this.#open();
      else if (performance.now() - this.#renewedAtMs >= RENEW_MS) await this.#renew(this.#id);
    } catch (error) {
      this.#close((error as Error).message);
    } finally {
      this.#isProbing = false;
    }
  }

  async #open(): Promise<void> {
    const id = randomUUID();
    const { counter, onOpen } = this.#options;
    // A call's first script would otherwise go twice, and a later call could overtake it.
    const loading = SCRIPTS.map((script) => this.#redis.script("LOAD", script));
    await within(BACKGROUND_MS, Promise.all(loading));
    const reply = await this.#eval(BEGIN, [], [id, SESSION_MS], BACKGROUND_MS);
    const [group = "", age] = reply as string[];
    const ageMs = Number(age);
    this.#begun = id;
    await counter.announce(id);
    if (ageMs < GRACE_MS) await new Promise((resolve) => setTimeout(resolve, GRACE_MS - ageMs));
    const hasLostData = this.#group !== undefined && this.#group !== group;
    if (counter.hasAdmittedAlone || hasLostData) await this.#eval(EMPTY, [], [id], BACKGROUND_MS);
    this.#group = group;
    if (this.#hasEnded) return;
    this.#renewedAtMs = performance.now();
    this.#keptAtMs = this.#renewedAtMs;
    this.#id = id;
    onOpen();
  }

  async #renew(id: string): Promise<void> {
    this.#renewedAtMs = performance.now();
    const { timeoutMs, keepEveryMs, counter } = this.#options;
    await this.#eval(RENEW, [], [id, SESSION_MS], timeoutMs);
    if (this.#renewedAtMs - this.#keptAtMs < keepEveryMs) return;
    this.#keptAtMs = this.#renewedAtMs;
    await counter.keep(id);
  }

  #close(reason: string): void {
    this.#begun = undefined;
    if (this.#id === undefined) return;
    this.#id = undefined;
    this.failures++;
    this.#options.onClose(reason);
  }

  /** Sends the script's digest; Redis forgets scripts when it restarts. */
  async #script(script: string, keys: string[], args: string[]): Promise<unknown> {
    const digest = DIGESTS.get(script) ?? "";
    try {
      return await this.#redis.evalsha(digest, keys.length, ...keys, ...args);
    } catch (error) {
      if (!(error as Error).message.startsWith("NOSCRIPT")) throw error;
      return this.#redis.eval(script, keys.length, ...keys, ...args);
    }
  }

  async #eval(
    script: string,
    keys: readonly string[],
    args: readonly Argument[],
    timeoutMs: number,
  ): Promise<unknown> {
    const all = [GROUP, ...keys];
    const given = [this.#options.master, ...args].map(String);
    const reply = await within(timeoutMs, this.#script(script, all, given));
    if (Array.isArray(reply) && reply[0] === "stale") throw new Error("Redis has lost the session");
    return reply;
  }
}

export type Argument = string | number;

const SCRIPTS = [BEGIN, EMPTY, KEEP, RENEW, SETTLE, TAKE];
const DIGESTS: ReadonlyMap<string, string> = new Map(
  SCRIPTS.map((script) => [script, createHash("sha1").update(script).digest("hex")]),
);

/** A busy event loop is not late: what has arrived is read before the time has passed. */
async function within<T>(timeoutMs: number, answer: Promise<T>): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    setImmediate(() => reject(new Error(`Redis did not answer within ${timeoutMs} ms`)));
  }, timeoutMs);
  try {
    return await Promise.race([answer, promise]);
  } finally {
    clearTimeout(timer);
  }
}
