import { AppError } from "@heddle/base/errors";
import type { EntryPayload } from "@heddle/raft/entry";

/** Proposals that wait for a leader or the disk; more are refused with `overloaded`. */
const MAX_WAITING = 10_000;
const MAX_WAITING_BYTES = 64 * 1024 * 1024;
/** What goes into the log in one step. */
const MAX_BATCH = 512;
const MAX_BATCH_BYTES = 1024 * 1024;

interface Pending<Reply> {
  readonly sequence: number;
  readonly payload: EntryPayload;
  readonly deadlineTick: number;
  /** The term in which it was handed to Raft; 0 while it waits. */
  term: number;
  resolve(reply: Reply): void;
  reject(error: AppError): void;
}

/** The callers of this replica whose commands are not applied yet, by their sequence number. */
export class PendingProposals<Reply> {
  readonly #open = new Map<number, Pending<Reply>>();
  #waiting: Pending<Reply>[] = [];
  #waitingBytes = 0;

  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** Resolves with the reply; rejects with `overloaded`, `unavailable`, `outcome_unknown` as told below. */
  add(sequence: number, payload: EntryPayload, deadlineTick: number): Promise<Reply> {
    const bytes = payload.data.byteLength;
    if (this.#open.size >= MAX_WAITING || this.#waitingBytes + bytes > MAX_WAITING_BYTES) {
      const message = `${this.#open.size} changes are on their way already.`;
      return Promise.reject(new AppError("overloaded", message, { retryAfterMs: 1000 }));
    }
    return new Promise((resolve, reject) => {
      const pending = { sequence, payload, deadlineTick, term: 0, resolve, reject };
      this.#open.set(sequence, pending);
      this.#waiting.push(pending);
      this.#waitingBytes += bytes;
    });
  }

  /** The next batch to hand to Raft, as long as `accept` takes them; what it refuses waits on. */
  handOver(term: number, accept: (batch: readonly EntryPayload[]) => boolean): boolean {
    const batch = this.#nextBatch();
    if (batch.length === 0 || !accept(batch.map(({ payload }) => payload))) return false;
    this.#waiting = this.#waiting.slice(batch.length);
    for (const pending of batch) {
      pending.term = term;
      this.#waitingBytes -= pending.payload.data.byteLength;
    }
    return true;
  }

  #nextBatch(): Pending<Reply>[] {
    let bytes = 0;
    let count = 0;
    for (const { payload } of this.#waiting) {
      bytes += payload.data.byteLength;
      if (count > 0 && (count >= MAX_BATCH || bytes > MAX_BATCH_BYTES)) break;
      count++;
    }
    return this.#waiting.slice(0, count);
  }

  resolve(sequence: number, reply: Reply): void {
    this.#open.get(sequence)?.resolve(reply);
    this.#open.delete(sequence);
  }

  reject(sequence: number, error: AppError): void {
    this.#open.get(sequence)?.reject(error);
    this.#open.delete(sequence);
  }

  /** A leader of a later term has taken over: what it did not take over may be lost. */
  rejectBefore(term: number): void {
    for (const pending of this.#open.values()) {
      if (pending.term > 0 && pending.term < term) {
        this.reject(pending.sequence, outcomeUnknown("the leader changed meanwhile"));
      }
    }
  }

  rejectExpired(tick: number): void {
    for (const pending of this.#open.values()) {
      if (pending.deadlineTick > tick) continue;
      if (pending.term > 0) {
        this.reject(pending.sequence, outcomeUnknown("no majority of masters answered in time"));
        continue;
      }
      this.#waiting = this.#waiting.filter((waiting) => waiting !== pending);
      this.#waitingBytes -= pending.payload.data.byteLength;
      this.reject(pending.sequence, noLeader());
    }
  }

  rejectAll(why: string): void {
    this.#waiting = [];
    this.#waitingBytes = 0;
    for (const { sequence, term } of this.#open.values()) {
      const error = term > 0 ? outcomeUnknown(why) : new AppError("unavailable", `${why}.`);
      this.reject(sequence, error);
    }
  }
}

function outcomeUnknown(why: string): AppError {
  const message = `It is unknown whether the change was made: ${why}. Look whether it took effect before you make it again.`;
  return new AppError("outcome_unknown", message);
}

/** The refusal of whatever needs a majority of the masters while there is none. */
export function noLeader(): AppError {
  const message =
    "There is no leader: a majority of the masters must run and reach each other. Nothing was changed.";
  return new AppError("unavailable", message, { retryAfterMs: 1000 });
}
