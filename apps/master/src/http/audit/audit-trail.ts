import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { toAppError } from "@heddle/base/errors";
import type { AuditCommand, AuditRecord } from "@heddle/control/audit/records";
import { CLASSIFIES_CALLS, RECORDS_EVENTS, versionOf } from "@heddle/control/cluster-version";
import type { Logger } from "@heddle/observability/logger";
import type { OnApplicationShutdown } from "@nestjs/common";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";

/** Calls gather for this long, or until a command is full. */
const GATHER_MS = 1_000;
/** Calls of a command: with more, the masters would apply it in a longer turn. */
const FULL_COMMAND = 64;
const RETRY_MS = 250;
/** Records that wait; more are counted instead. */
const MAX_WAITING = 16_384;
/** How long a master that ends waits for its last records. */
const LAST_MS = 3_000;

interface AuditParts {
  readonly control: ControlPlane;
  readonly master: string;
  readonly log: Logger;
}

/**
 * The calls that this master answered and no change names, on their way into the event log. One
 * command takes those of a second, or 64 of them; it is made once, however often it is sent.
 */
export class AuditTrail implements OnApplicationShutdown {
  readonly #parts: AuditParts;
  /** Numbers the commands of this process. */
  readonly #process = randomBytes(6).toString("hex");
  #number = 0;
  #waiting: AuditRecord[] = [];
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #isClosed = false;
  /** Since the start of this process. */
  readonly counts = { recorded: 0, dropped: 0 };

  constructor(parts: AuditParts) {
    this.#parts = parts;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Whether all masters make events with the compliance level and tags of a call. */
  get classifiesCalls(): boolean {
    return versionOf(this.#parts.control.state) >= CLASSIFIES_CALLS;
  }

  /** Takes a call; it is in the event log soon. */
  record(record: AuditRecord): void {
    if (!this.#parts.control.events) return;
    if (this.#waiting.length < MAX_WAITING) this.#waiting.push(record);
    else this.#drop();
    this.#sendSoon();
  }

  /** Takes a call of which only the number is kept. */
  count(): void {
    if (!this.#parts.control.events) return;
    this.#drop();
    this.#sendSoon();
  }

  #drop(): void {
    this.#dropped++;
    this.counts.dropped++;
  }

  #sendSoon(): void {
    if (this.#waiting.length >= FULL_COMMAND) this.#send();
    else this.#timer ??= setTimeout(() => this.#send(), GATHER_MS).unref();
  }

  /** Resolves when the call is in the event log; rejects where that cannot be. */
  async recordNow(record: AuditRecord): Promise<void> {
    const { control } = this.#parts;
    if (!control.events || versionOf(control.state) < RECORDS_EVENTS) return;
    const { master } = this.#parts;
    // Without a number: it may be applied before one with an earlier number that is sent again.
    const command = { type: "audit.record", atMs: Date.now(), master, records: [record] } as const;
    await propose(control, command);
    this.counts.recorded++;
  }

  async onApplicationShutdown(): Promise<void> {
    this.#send();
    this.#isClosed = true;
    if (this.#sending) await resolvesWithin(this.#sending, LAST_MS);
    if (this.#waiting.length > 0) {
      this.#parts.log.error({ lost: this.#waiting.length }, "calls were not recorded");
    }
  }

  get #hasSome(): boolean {
    return this.#waiting.length > 0 || this.#dropped > 0;
  }

  #send(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
      if (this.#hasSome && !this.#isClosed) this.#sendSoon();
    });
  }

  /** Sends a command, and more while they are full: what arrives later gathers again. */
  async #sendAll(): Promise<void> {
    while (this.#hasSome) {
      const records = this.#waiting.splice(0, FULL_COMMAND);
      const dropped = this.#dropped;
      const command = this.#command(records, dropped);
      while (!(await this.#isMade(command))) {
        if (this.#isClosed) {
          this.#waiting.unshift(...records);
          return;
        }
        await delay(RETRY_MS, undefined, { ref: false });
      }
      this.#dropped -= dropped;
      this.counts.recorded += records.length;
      if (this.#waiting.length < FULL_COMMAND && !this.#isClosed) return;
    }
  }

  #command(records: readonly AuditRecord[], dropped = 0): AuditCommand {
    const { master } = this.#parts;
    const batch = { process: this.#process, number: ++this.#number };
    const given = { type: "audit.record", atMs: Date.now(), master, batch, records } as const;
    return dropped === 0 ? given : { ...given, dropped };
  }

  /** Whether the command is in the log; where that is not known, it is sent again as it is. */
  async #isMade(command: AuditCommand): Promise<boolean> {
    const { control, log } = this.#parts;
    // A new group takes up its version after its first calls; those of an old one wait or are counted.
    if (versionOf(control.state) < RECORDS_EVENTS) return false;
    try {
      await propose(control, command);
      return true;
    } catch (error) {
      log.debug({ err: toAppError(error) }, "calls are not recorded yet");
      return false;
    }
  }
}
