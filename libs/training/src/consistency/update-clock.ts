/** How far workers may drift apart; see docs/internals/training.md. */
export type ConsistencyModel =
  | { readonly kind: "bsp" }
  | { readonly kind: "ssp"; readonly staleness: number }
  | { readonly kind: "asp" };

/** The verdict on a worker's part. */
export type PartVerdict =
  /** Included in an update. */
  | "accepted"
  /** Applied already: the push was retried. */
  | "repeated"
  /** Its update was made without it. */
  | "late"
  /** It skips a push, or its worker is not in the job. */
  | "out_of_order";

/**
 * Counts each rank's pushes, and decides which updates follow and who may read them. It never
 * handles data. A rank's pushes are numbered from 1.
 *
 * Invariants:
 * - Under bsp every live rank's clock is `version` or `version + 1`.
 * - Under ssp a pull succeeds only while the puller is at most `staleness` pushes ahead of the
 *   slowest live rank.
 */
export class UpdateClock {
  readonly #model: ConsistencyModel;
  /** Keyed by rank: the number of its latest accepted push. */
  readonly #clocks = new Map<number, number>();
  readonly #gone = new Set<number>();
  /** Keyed by rank: the latest update that was made without it. */
  readonly #missed = new Map<number, number>();
  #version = 0;
  #stragglers = 0;

  /** `version` is that of a checkpoint; every rank has then pushed that many times. */
  constructor(model: ConsistencyModel, workers: number, version = 0) {
    this.#model = model;
    this.#version = version;
    for (let rank = 0; rank < workers; rank++) this.#clocks.set(rank, version);
  }

  /** Updates applied. */
  get version(): number {
    return this.#version;
  }

  /** Parts that updates were made without. */
  get stragglers(): number {
    return this.#stragglers;
  }

  /** Ranks that have not left. */
  get live(): number {
    return this.#clocks.size - this.#gone.size;
  }

  /** The number of pushes of a rank; undefined where it is not in the job. */
  clockOf(rank: number): number | undefined {
    return this.#gone.has(rank) ? undefined : this.#clocks.get(rank);
  }

  /** Classifies push number `clock` of a rank before any of its data is used. */
  classify(rank: number, clock: number): PartVerdict {
    const latest = this.#clocks.get(rank);
    if (latest === undefined || this.#gone.has(rank)) return "out_of_order";
    if (clock <= latest) return this.#missed.get(rank) === clock ? "late" : "repeated";
    const next = this.#model.kind === "bsp" ? this.#version + 1 : latest + 1;
    return clock === next ? "accepted" : "out_of_order";
  }

  /**
   * Records an added part. Returns the ranks whose parts make an update now, ascending: under bsp
   * all live ones once the last has arrived, else this one.
   */
  accept(rank: number, clock: number): readonly number[] {
    this.#clocks.set(rank, clock);
    if (this.#model.kind !== "bsp") {
      this.#version++;
      return [rank];
    }
    return this.#update(this.waitingFor().length === 0);
  }

  /** Under bsp: the live ranks whose part is missing from the next update. */
  waitingFor(): readonly number[] {
    return [...this.#clocks]
      .filter(([rank, clock]) => clock <= this.#version && !this.#gone.has(rank))
      .map(([rank]) => rank);
  }

  /** Under bsp: applies what has arrived, without stragglers. Returns the ranks in the update. */
  applyWithoutStragglers(): readonly number[] {
    const missing = this.waitingFor();
    const some = [...this.#clocks.values()].some((clock) => clock > this.#version);
    if (!some) return [];
    this.#stragglers += missing.length;
    const ranks = this.#update(true);
    // Their next push counts for the next update: the missed one is never waited for again.
    for (const rank of missing) {
      this.#clocks.set(rank, this.#version);
      this.#missed.set(rank, this.#version);
    }
    return ranks;
  }

  /**
   * A worker left for good: no update waits for it. Returns the ranks of the update that this
   * completes.
   */
  leave(rank: number): readonly number[] {
    if (!this.#clocks.has(rank) || this.#gone.has(rank)) return [];
    this.#gone.add(rank);
    if (this.#model.kind !== "bsp") return [];
    const some = [...this.#clocks].some(
      ([other, clock]) => clock > this.#version && !this.#gone.has(other),
    );
    return this.#update(some && this.waitingFor().length === 0);
  }

  /** Under bsp: withdraws a part of the next update, which its worker must push again. */
  withdraw(rank: number): void {
    this.#clocks.set(rank, this.#version);
  }

  /**
   * A worker joins, or returns, between two updates. Where each part is an update by itself, one
   * that returns continues at its rank's clock: its earlier pushes are in the parameters.
   */
  join(rank: number): void {
    const own = this.#clocks.get(rank) ?? this.#slowest();
    this.#gone.delete(rank);
    this.#clocks.set(rank, this.#model.kind === "bsp" ? this.#version : own);
  }

  /** Whether a rank that has pushed `clock` times may read the current parameters. */
  mayPull(clock: number): boolean {
    if (this.#model.kind === "bsp") return clock <= this.#version;
    if (this.#model.kind === "asp") return true;
    return clock - this.#slowest() <= this.#model.staleness;
  }

  #update(due: boolean): readonly number[] {
    if (!due) return [];
    const ranks = [...this.#clocks].filter(([, clock]) => clock > this.#version);
    this.#version++;
    return ranks.map(([rank]) => rank).sort((a, b) => a - b);
  }

  #slowest(): number {
    const live = [...this.#clocks].filter(([rank]) => !this.#gone.has(rank));
    return live.length === 0 ? this.#version : Math.min(...live.map(([, clock]) => clock));
  }
}
