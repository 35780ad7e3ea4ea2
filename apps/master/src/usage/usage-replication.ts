import { AppError } from "@heddle/base/errors";
import { LIMITS_SUBJECTS, versionOf } from "@heddle/control/cluster-version";
import { MAX_USAGE_SUMS } from "@heddle/control/usage";
import type { UsageSum } from "@heddle/control/usage-sum";
import type { Logger } from "@heddle/observability/logger";
import type { OnApplicationBootstrap, OnApplicationShutdown } from "@nestjs/common";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { propose } from "../control-plane/propose.ts";
import type { UsageBook } from "./usage-book.ts";

const SEND_EVERY_MS = 5_000;

/** Sends the sums of this master to all: a few commands a round, however many calls there were. */
export class UsageReplication implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #book: UsageBook;
  readonly #logger: Logger;
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #isRaised = false;

  constructor(control: ControlPlane, book: UsageBook, logger: Logger) {
    this.#control = control;
    this.#book = book;
    this.#logger = logger;
  }

  onApplicationBootstrap(): void {
    this.#timer = setInterval(() => void this.send(), SEND_EVERY_MS).unref();
  }

  async onApplicationShutdown(): Promise<void> {
    clearInterval(this.#timer);
    await this.#sending;
  }

  /** Sends what has changed; a failure is tried again in the next round. */
  send(): Promise<void> {
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
    });
    return this.#sending;
  }

  /** The sums of all masters, this one's as of now. */
  *sums(from: number, to: number): Generator<UsageSum, void> {
    const own = this.#ownId;
    for (const sum of this.#control.state.usage.values()) {
      if (sum.master !== own && sum.day >= from && sum.day <= to) yield sum;
    }
    for (const sum of this.#book.between(from, to)) yield sum;
  }

  get #ownId(): number {
    return this.#control.group?.status().id ?? 0;
  }

  /** Once, with all that this master has ever sent. */
  async #raise(): Promise<void> {
    await this.#control.group?.readBarrier();
    for (const { master, ...sum } of this.#control.state.usage.values()) {
      if (master === this.#ownId) this.#book.raise(sum);
    }
    this.#isRaised = true;
  }

  async #send(): Promise<void> {
    if (versionOf(this.#control.state) < LIMITS_SUBJECTS) return;
    try {
      if (!this.#isRaised) await this.#raise();
      while (this.#book.changed > 0) await this.#sendSome();
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      this.#logger.debug({ err: error }, "sums of usage were not sent");
    }
  }

  async #sendSome(): Promise<void> {
    const sums = this.#book.takeChanged(MAX_USAGE_SUMS);
    const command = { type: "usage.put", atMs: Date.now(), master: this.#ownId, sums } as const;
    try {
      await propose(this.#control, command);
    } catch (error) {
      this.#book.putBack(sums);
      throw error;
    }
  }
}
