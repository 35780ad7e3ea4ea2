import { AppError } from "@heddle/base/errors";
import type { Entry, EntryPayload } from "@heddle/raft/log/entry";

/** Proposals that wait for a leader or the disk; more are refused with `overloaded`. */
const MAX_WAITING = 10_000;
const MAX_WAITING_BYTES = 64 * 1024 * 1024;
/** What goes into the log in one step. */
const MAX_BATCH = 512;
const MAX_BATCH_BYTES = 1024 * 1024;

/** Receives the outcome of proposals; one waiter may serve many. */
export interface ProposalWaiter<Reply> {
  resolve(reply: Reply, sequence: number): void;
  reject(error: AppError, sequence: number): void;
}

interface Pending<Reply> {
  readonly sequence: number;
  /** Without its place in the log. */
  readonly entry: Entry;
  readonly deadlineTick: number;
  readonly waiter: ProposalWaiter<Reply>;
  /** The term in which it was handed to Raft; 0 while it waits. */
  term: number;
  /** The batch in which it was handed over last. */
  handOver: number;
}

/** The callers of this replica whose commands are not applied yet, by their sequence number. */
export class PendingProposals<Reply> {
  readonly #open = new Map<number, Pending<Reply>>();
  #waiting: Pending<Reply>[] = [];
  #waitingBytes = 0;
  /** What was handed over in earlier terms is rejected already. */
  #rejectedBefore = 0;

  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /**
   * Adds a proposal; rejects its waiter at once with `overloaded` where the bounds are reached.
   */
  add(
    sequence: number,
    { type, data }: EntryPayload,
    deadlineTick: number,
    waiter: ProposalWaiter<Reply>,
  ): void {
    const bytes = data.byteLength;
    if (this.#open.size >= MAX_WAITING || this.#waitingBytes + bytes > MAX_WAITING_BYTES) {
      const message = `${this.#open.size} changes are on their way already.`;
      waiter.reject(new AppError("overloaded", message, { retryAfterMs: 1000 }), sequence);
      return;
    }
    const entry = { term: 0, index: 0, type, data };
    const pending = { sequence, entry, deadlineTick, waiter, term: 0, handOver: 0 };
    this.#open.set(sequence, pending);
    this.#waiting.push(pending);
    this.#waitingBytes += bytes;
  }

  /**
   * The next batch to hand to Raft: `accept` gives the number under which it took them, or undefined
   * where it did not; those wait on.
   */
  handOver(term: number, accept: (batch: readonly Entry[]) => number | undefined): boolean {
    const batch: Entry[] = [];
    let bytes = 0;
    for (const { entry } of this.#waiting) {
      const size = entry.data.byteLength;
      const isFull = batch.length >= MAX_BATCH || bytes + size > MAX_BATCH_BYTES;
      if (batch.length > 0 && isFull) break;
      batch.push(entry);
      bytes += size;
    }
    const handOver = batch.length === 0 ? undefined : accept(batch);
    if (handOver === undefined) return false;
    for (const pending of this.#waiting.slice(0, batch.length)) {
      pending.term = term;
      pending.handOver = handOver;
    }
    this.#waiting = this.#waiting.slice(batch.length);
    this.#waitingBytes -= bytes;
    return true;
  }

  /** What was handed over under that number was surely not taken: it waits again, before the others. */
  takeBack(handOver: number): void {
    const back: Pending<Reply>[] = [];
    for (const pending of this.#open.values()) {
      if (pending.term === 0 || pending.handOver !== handOver) continue;
      pending.term = 0;
      this.#waitingBytes += pending.entry.data.byteLength;
      back.push(pending);
    }
    this.#waiting = [...back, ...this.#waiting];
  }

  resolve(sequence: number, reply: Reply): void {
    this.#open.get(sequence)?.waiter.resolve(reply, sequence);
    this.#open.delete(sequence);
  }

  reject(sequence: number, error: AppError): void {
    this.#open.get(sequence)?.waiter.reject(error, sequence);
    this.#open.delete(sequence);
  }

  /** A leader of a later term has taken over: what it did not take over may be lost. */
  rejectBefore(term: number): void {
    // What is handed over now is of the present term, which is no earlier than an applied one.
    if (term <= this.#rejectedBefore) return;
    this.#rejectedBefore = term;
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
      this.#waitingBytes -= pending.entry.data.byteLength;
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
  const message = `It is unknown whether the change was made: ${why}. Check whether it took effect before you make it again.`;
  return new AppError("outcome_unknown", message);
}

/** The refusal of whatever needs a majority of the masters while there is none. */
export function noLeader(): AppError {
  const message =
    "There is no leader: a majority of the masters must run and reach each other. Nothing was changed.";
  return new AppError("unavailable", message, { retryAfterMs: 1000 });
}
