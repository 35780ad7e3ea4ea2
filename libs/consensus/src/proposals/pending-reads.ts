import { AppError } from "@heddle/base/errors";
import type { ReadState } from "@heddle/raft/core/state";
import { noLeader } from "./pending-proposals.ts";

/** Reads that may wait at once; more are refused with `overloaded`. */
const MAX_READS = 65_536;

interface Waiter {
  readonly deadlineTick: number;
  resolve(): void;
  reject(error: AppError): void;
}

interface ReadBatch {
  readonly waiters: readonly Waiter[];
  readonly startedTick: number;
}

/**
 * Linearizable reads of this replica; those that wait share one question to the leader. Each
 * question has a number of its own, so that no late answer serves a newer read.
 */
export class PendingReads {
  readonly #incarnation: number;
  #waiting: Waiter[] = [];
  readonly #rounds = new Map<number, ReadBatch>();
  #confirmed: { index: number; waiters: readonly Waiter[] }[] = [];
  #nextRound = 1;
  #size = 0;

  constructor(incarnation: number) {
    this.#incarnation = incarnation;
  }

  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Resolves when this replica has applied everything that was committed at the time of the call. */
  add(deadlineTick: number): Promise<void> {
    if (this.#size >= MAX_READS) {
      const message = `${this.#size} reads wait for the leader already.`;
      return Promise.reject(new AppError("overloaded", message, { retryAfterMs: 1000 }));
    }
    this.#size++;
    return new Promise<void>((resolve, reject) => {
      this.#waiting.push({ deadlineTick, resolve, reject });
    }).finally(() => {
      this.#size--;
    });
  }

  /** Asks for all reads that wait; they wait on where `ask` returns false. */
  ask(tick: number, ask: (context: Uint8Array) => boolean): void {
    const number = this.#nextRound++;
    if (!ask(this.#contextOf(number))) return;
    this.#rounds.set(number, { waiters: this.#waiting, startedTick: tick });
    this.#waiting = [];
  }

  answered({ index, context }: ReadState): void {
    const number = this.#numberOf(context);
    if (number === undefined) return;
    const round = this.#rounds.get(number);
    if (!round) return;
    this.#rounds.delete(number);
    this.#confirmed.push({ index, waiters: round.waiters });
  }

  /** Lets the reads go whose index is applied. */
  applied(index: number): void {
    if (this.#confirmed.length === 0) return;
    const ready = this.#confirmed.filter((read) => read.index <= index);
    this.#confirmed = this.#confirmed.filter((read) => read.index > index);
    for (const { waiters } of ready) for (const waiter of waiters) waiter.resolve();
  }

  /** Questions that no one answered are asked again, under a new number; late reads are refused. */
  tick(tick: number, roundTicks: number): void {
    if (this.#size === 0) return;
    for (const [number, round] of this.#rounds) {
      if (tick - round.startedTick < roundTicks) continue;
      this.#rounds.delete(number);
      this.#waiting.push(...round.waiters);
    }
    this.#waiting = this.#rejectLate(this.#waiting, tick, noLeader);
    this.#confirmed = this.#confirmed
      .map(({ index, waiters }) => ({
        index,
        waiters: this.#rejectLate(waiters, tick, tooFarBehind),
      }))
      .filter(({ waiters }) => waiters.length > 0);
  }

  /** The waiters that may still wait. */
  #rejectLate(waiters: readonly Waiter[], tick: number, why: () => AppError): Waiter[] {
    const late = waiters.filter(({ deadlineTick }) => deadlineTick <= tick);
    for (const waiter of late) waiter.reject(why());
    return waiters.filter(({ deadlineTick }) => deadlineTick > tick);
  }

  rejectAll(why: string): void {
    const rounds = [...this.#rounds.values(), ...this.#confirmed];
    const waiters = [...this.#waiting, ...rounds.flatMap((round) => round.waiters)];
    this.#waiting = [];
    this.#rounds.clear();
    this.#confirmed = [];
    for (const waiter of waiters) waiter.reject(new AppError("unavailable", `${why}.`));
  }

  #contextOf(number: number): Uint8Array {
    const view = new DataView(new ArrayBuffer(12));
    view.setUint32(0, this.#incarnation);
    view.setFloat64(4, number);
    return new Uint8Array(view.buffer);
  }

  #numberOf(context: Uint8Array): number | undefined {
    if (context.byteLength !== 12) return undefined;
    const view = new DataView(context.buffer, context.byteOffset, 12);
    return view.getUint32(0) === this.#incarnation ? view.getFloat64(4) : undefined;
  }
}

/** The leader answered, and what it had committed then did not arrive here. */
function tooFarBehind(): AppError {
  const message =
    "This master did not catch up with the leader in time; try again, or ask another master.";
  return new AppError("unavailable", message, { retryAfterMs: 1000 });
}
