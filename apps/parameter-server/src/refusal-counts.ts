/** Why something was not let in; their order is that of the memory. */
const REASONS = ["strangers", "invalid", "stale"] as const;

/** Why something was not let in. */
export type RefusalReason = (typeof REASONS)[number];

/** What a server has refused since its process began; its threads count into the same memory. */
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
    const [strangers = 0, invalid = 0, stale = 0] = REASONS.map((_, i) =>
      Number(Atomics.load(this.#counts, i)),
    );
    return { strangers, invalid, stale };
  }
}
