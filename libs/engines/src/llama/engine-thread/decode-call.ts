import { isScoring, type Sequence, type TextSequence } from "../kv-cache/sequence.ts";
import type { Batch } from "./batch.ts";

/** One call of the library: its batch, and the sequences whose tokens are in it. */
export class DecodeCall {
  readonly batch: Batch;
  /** In the order of the batch. */
  readonly members: Sequence[] = [];
  /** The sequences that have rows of logits in it, and how many rows. */
  readonly rows: TextSequence[] = [];
  readonly rowCounts: number[] = [];
  /** Admissions of the members when they were added. */
  readonly #admitted = new Map<Sequence, number>();

  constructor(batch: Batch) {
    this.batch = batch;
  }

  clear(): void {
    this.batch.clear();
    this.members.length = 0;
    this.rows.length = 0;
    this.rowCounts.length = 0;
    this.#admitted.clear();
  }

  /** Adds a sequence whose tokens are in the batch already. */
  enter(sequence: Sequence): void {
    this.members.push(sequence);
    this.#admitted.set(sequence, sequence.admitted);
  }

  /** Adds what is planned of a sequence, and its draft. */
  add(sequence: TextSequence): void {
    const { batch } = this;
    const { values, length } = sequence.tokens;
    const end = sequence.computed + sequence.planned;
    const firstRow = isScoring(sequence) ? sequence.scored - 1 : length - 1;
    const before = batch.outputCount;
    for (let at = sequence.computed; at < end; at++) {
      batch.add(values[at] as number, at, sequence.slot, at >= firstRow);
    }
    for (let i = 0; i < sequence.drafted; i++) {
      batch.add(sequence.drafter?.tokens[i] as number, end + i, sequence.slot, true);
    }
    this.enter(sequence);
    if (end <= firstRow) return;
    this.rows.push(sequence);
    this.rowCounts.push(batch.outputCount - before);
  }

  /** The members that still are what was added. */
  get current(): Sequence[] {
    return this.members.filter((sequence) => this.isCurrent(sequence));
  }

  /** Whether it still is what was added: it may have ended or lost its slot meanwhile. */
  isCurrent(sequence: Sequence): boolean {
    return sequence.slot >= 0 && this.#admitted.get(sequence) === sequence.admitted;
  }
}
