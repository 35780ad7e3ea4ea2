/** Reasons of refusals, in the order of their counters in the shared memory. */
const REASONS = ["unauthenticated", "invalid", "stale"] as const;

/** The reason of a refusal. */
export type RefusalReason = (typeof REASONS)[number];

/** The refusals of a server since its process began; its threads count into the same memory. */
export class RefusalCounts {
  readonly memory: SharedArrayBuffer;
  readonly #counts: BigUint64Array;

  /** Over a memory that another thread has made, or over a new one. */
  constructor(memory = new SharedArrayBuffer(REASONS.length * BigUint64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#counts = new BigUint64Array(memory);
  }

  add(reason: RefusalReason): void {
    Atomics.add(this.#counts, REASONS.indexOf(reason), 1n);
  }

  get totals(): Readonly<Record<RefusalReason, number>> {
    const [unauthenticated = 0, invalid = 0, stale = 0] = REASONS.map((_, i) =>
      Number(Atomics.load(this.#counts, i)),
    );
    return { unauthenticated, invalid, stale };
  }
}
