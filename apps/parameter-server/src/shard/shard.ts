import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError, toAppError } from "@heddle/base/errors";
import { PartAdder } from "@heddle/parameters/data-plane/part-adder";
import type { PushArgument, PushResult } from "@heddle/parameters/data-plane/push-announcement";
import { checkPlan, planDigest } from "@heddle/parameters/shards/job-plan";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { UpdateClock } from "@heddle/training/consistency/update-clock";
import type { ShardSlab } from "../slab/shard-slab.ts";
import { PartFetcher } from "./part-fetcher.ts";
import { SlabFill } from "./slab-fill.ts";
import { type GateRelease, UpdateGate } from "./update-gate.ts";
import { type PendingPush, UpdateRound } from "./update-round.ts";

/** How long a shard makes no progress before a checkpoint takes it to lag behind the others. */
const LAG_MS = 2_000;

/** Adds this shard's part of a squared norm to the others', in bsp; returns the total. */
export type ExchangeNorm = (
  spec: ShardSpec,
  version: number,
  squares: number,
  signal: AbortSignal,
) => Promise<number>;

/** A shard's dependencies on its thread. */
export interface ShardContext {
  readonly taker: PartFetcher;
  readonly exchangeNorm: ExchangeNorm;
  /** Called for each part or request that is refused for its content. */
  readonly onInvalid: () => void;
}

/** A shard's counters, for its status. */
export interface ShardCounts {
  pushes: number;
  refusedInvalid: number;
  bytesPushed: number;
  bytesPulled: number;
}

/**
 * One shard's parameters and the rules of their updates. Parts are taken one at a time: under bsp
 * in the order of ranks, so that sums are reproducible; else as they are announced.
 *
 * Invariants:
 * - The parameters contain exactly `version` updates whenever the gate admits a reader.
 * - Under bsp the sums hold exactly the parts of `round.added` between two takes.
 */
export class Shard {
  readonly counts: ShardCounts = { pushes: 0, refusedInvalid: 0, bytesPushed: 0, bytesPulled: 0 };
  readonly #slab: ShardSlab;
  readonly #taker: PartFetcher;
  readonly #context: ShardContext;
  #gate = new UpdateGate();
  #round = new UpdateRound();
  #closed = new AbortController();
  #spec: ShardSpec;
  /** The same for all attempts that continue with this slab. */
  readonly #plan: string;
  #clock: UpdateClock;
  #ready = false;
  /** Updates in the parameters; the clock is one ahead during an update. */
  #applied = 0;
  /** Updates that were in them when this attempt began. */
  #begun = 0;
  /** Takes and updates, serialized. */
  readonly #work = new SerialQueue();
  #straggling: NodeJS.Timeout | undefined;
  #stragglersMissed = false;
  /** Keyed by rank: the incarnation of the task that joined last. */
  readonly #incarnations = new Map<number, number>();
  #departures = 0;
  /** Whether the latest take left slices of a part in the sums. */
  #broken = false;

  constructor(spec: ShardSpec, slab: ShardSlab, context: ShardContext) {
    this.#spec = spec;
    this.#plan = planDigest(spec);
    this.#slab = slab;
    this.#context = context;
    this.#taker = context.taker;
    this.#clock = new UpdateClock(spec.consistency, spec.workers);
  }

  get spec(): ShardSpec {
    return this.#spec;
  }

  get version(): number {
    return this.#applied;
  }

  get begunVersion(): number {
    return this.#begun;
  }

  get stragglers(): number {
    return this.#clock.stragglers;
  }

  /** Ranks that updates wait for. */
  get workers(): number {
    return this.#clock.live;
  }

  /** How often a rank has left. */
  get departures(): number {
    return this.#departures;
  }

  get ready(): boolean {
    return this.#ready;
  }

  /** A later attempt continues with these parameters; the parts of the one before are dropped. */
  async reopen(spec: ShardSpec): Promise<void> {
    const version = this.version;
    await this.#stop(new AppError("precondition_failed", "a later attempt has taken the job over"));
    this.#closed = new AbortController();
    this.#spec = spec;
    this.#incarnations.clear();
    this.#begun = version;
    this.#clock = new UpdateClock(spec.consistency, spec.workers, version);
    this.#round = new UpdateRound();
    this.#gate = new UpdateGate();
  }

  /** Fills the slab with a checkpoint's numbers; `load` returns their version. */
  async restore(load: () => Promise<number>): Promise<number> {
    await this.#alone(async () => {
      this.#ready = false;
      this.#applied = await load();
      this.#slab.publishWhole();
      this.#begun = this.#applied;
      this.#clock = new UpdateClock(this.#spec.consistency, this.#spec.workers, this.#applied);
      this.#ready = true;
      this.#gate.changed();
    });
    return this.version;
  }

  close(): Promise<void> {
    return this.#stop(new AppError("unavailable", "the shard was closed"));
  }

  /**
   * Waits until a rank that has pushed `clock` times may read the parameters, and blocks updates.
   */
  async read(
    rank: number | undefined,
    clock: number,
    signal: AbortSignal,
  ): Promise<{ readonly version: number; readonly release: GateRelease }> {
    const limited = AbortSignal.any([signal, this.#closed.signal]);
    if (rank !== undefined && this.#clock.clockOf(rank) === undefined)
      throw this.#unknownRank(rank);
    const may = () => this.#ready && (rank === undefined || this.#clock.mayPull(clock));
    const release = await this.#gate.read(may, limited);
    return { version: this.version, release };
  }

  /**
   * Like `read`, for a checkpoint of this version; rejects with `conflict` when it has passed. A
   * lagging shard has less, and no part is on its way: `bsp` rejects too, others are read without
   * parts of a lost worker.
   */
  async readAt(version: number, signal: AbortSignal): Promise<GateRelease> {
    const limited = AbortSignal.any([signal, this.#closed.signal]);
    let isLagging = false;
    let seen = this.version;
    const watch = setInterval(() => {
      isLagging = this.version === seen && this.#next() === undefined;
      seen = this.version;
      if (isLagging) this.#gate.changed();
    }, LAG_MS);
    try {
      const may = () => this.#ready && (this.version >= version || isLagging);
      const release = await this.#gate.read(may, limited);
      const isBsp = this.#spec.consistency.kind === "bsp";
      if (this.version === version || (this.version < version && !isBsp)) return release;
      release();
    } finally {
      clearInterval(watch);
    }
    const { shard } = this.#spec;
    const why =
      this.version > version
        ? "it is too late"
        : "a worker was lost before it had pushed its part here, and has not returned or left";
    const message = `shard ${shard} has version ${this.version} and cannot write a checkpoint of ${version}: ${why}`;
    throw new AppError("conflict", message);
  }

  /**
   * A rank joins, or leaves for good. Returns the number of pushes that it counts with. A later
   * incarnation of a rank's task replaces it; messages of an earlier one are then ignored.
   */
  async member(rank: number, leaves: boolean, incarnation = 0): Promise<number> {
    let clock = 0;
    await this.#alone(async () => {
      // Otherwise an update would wait for a part that never arrives.
      if (!leaves && rank >= this.#spec.workers) throw this.#unknownRank(rank);
      const present = this.#incarnations.get(rank) ?? 0;
      if (!leaves) this.#incarnations.set(rank, Math.max(present, incarnation));
      if (leaves && incarnation < present) {
        clock = this.#clock.clockOf(rank) ?? this.version;
        return;
      }
      if (leaves && this.#clock.clockOf(rank) !== undefined) this.#departures++;
      if (leaves) {
        const pending = this.#round.of(rank);
        pending?.done.reject(this.#unknownRank(rank));
        if (pending) this.#round.settled(pending);
        const ranks = this.#clock.leave(rank);
        if (ranks.length > 0) await this.#update(this.#round.empty());
        this.#gate.changed();
      } else if (this.#clock.clockOf(rank) === undefined) this.#clock.join(rank);
      clock = this.#clock.clockOf(rank) ?? this.version;
    });
    this.#takeAvailable();
    return clock;
  }

  /** Throws an AppError `invalid_value` for a worker with another plan than the job's. */
  checkPlan(plan: unknown): void {
    try {
      checkPlan(this.#spec, this.#plan, plan);
    } catch (error) {
      throw this.#invalid(toAppError(error));
    }
  }

  /** Resolves when the part is added. Rejects with `invalid_value`, `conflict` or `unavailable`. */
  async push(argument: PushArgument, signal: AbortSignal): Promise<PushResult> {
    this.checkPlan(argument.plan);
    const { rank, clock, weight, learningRate, squares } = argument;
    if (clock === 0) return this.#fill(argument, signal);
    const numbers = [weight, learningRate, squares];
    if (!numbers.every(Number.isFinite) || !(weight > 0) || squares < 0) {
      const message = `weight ${weight}, learning rate ${learningRate} or squares ${squares}`;
      throw this.#invalid(new AppError("invalid_value", `a push has ${message} out of range`));
    }
    if (!this.#ready) {
      throw new AppError("conflict", "the shard has no parameters yet: push them as clock 0 first");
    }
    const fate = this.#clock.classify(rank, clock);
    if (fate === "out_of_order") throw this.#outOfOrder(rank, clock);
    if (fate !== "accepted") return { version: this.version, path: "" };
    const limited = AbortSignal.any([signal, this.#closed.signal]);
    const done = Promise.withResolvers<PushResult>();
    this.#round.announce({ ...argument, done, signal: limited });
    this.#watchStragglers();
    this.#takeAvailable();
    return done.promise;
  }

  #fill(argument: PushArgument, signal: AbortSignal): Promise<PushResult> {
    return this.#alone(async () => {
      if (this.#ready) return { version: this.version, path: "" };
      const sink = () => new SlabFill(this.#slab);
      this.counts.bytesPushed += await this.#taker.take(this.#spec, argument, sink, signal);
      this.#slab.publishWhole();
      this.#ready = true;
      this.#gate.changed();
      return { version: this.version, path: this.#taker.path };
    });
  }

  /** Takes all available parts; those that arrive meanwhile are considered too. */
  #takeAvailable(): void {
    const closed = this.#closed.signal;
    void this.#alone(async () => {
      for (let push = this.#next(); push; push = this.#next()) await this.#process(push);
      if (this.#stragglersMissed) await this.#applyWithoutStragglers();
    }).catch((error: unknown) => {
      // Only a closed shard ends its work with an error; each push has received its own.
      if (!closed.aborted) throw error;
    });
  }

  #next(): PendingPush | undefined {
    if (this.#spec.consistency.kind !== "bsp") return this.#round.announced[0];
    const waiting = this.#clock.waitingFor().toSorted((a, b) => a - b);
    if (!this.#stragglersMissed) return this.#round.of(waiting[0] ?? -1);
    return waiting.map((rank) => this.#round.of(rank)).find((push) => push !== undefined);
  }

  async #process(push: PendingPush): Promise<void> {
    const { rank, clock } = push;
    const bsp = this.#spec.consistency.kind === "bsp";
    try {
      if (this.#clock.classify(rank, clock) === "accepted") {
        if (!bsp) this.#round.empty();
        const bytes = await this.#add(push);
        this.counts.pushes++;
        this.counts.bytesPushed += bytes;
        this.#round.add(push);
        if (this.#clock.accept(rank, clock).length > 0) await this.#update(this.#round.empty());
      }
      push.done.resolve({ version: this.version, path: this.#taker.path });
    } catch (error) {
      push.done.reject(this.#invalid(toAppError(error)));
      if (this.#broken) await this.#rebuild(this.#round.empty());
    } finally {
      this.#round.settled(push);
    }
  }

  #add(push: PendingPush): Promise<number> {
    const first = this.#round.added.length === 0;
    const { compression } = this.#spec;
    let adder: PartAdder | undefined;
    this.#broken = false;
    const sink = () => {
      // A retry after one that broke in the middle must not add to its remains.
      this.#broken = adder?.touched === true && !first;
      if (this.#broken) throw new AppError("worker_lost", "a part broke off in its middle");
      adder = new PartAdder(this.#slab.accumulator, compression, push.weight, first);
      return adder;
    };
    return this.#taker.take(this.#spec, push, sink, push.signal).catch((error: unknown) => {
      this.#broken = adder?.touched === true && !first;
      throw error;
    });
  }

  /** A broken part left slices in the sums: the others are taken again, in their order. */
  async #rebuild(parts: readonly PendingPush[]): Promise<void> {
    for (const push of parts) {
      try {
        await this.#add({ ...push, signal: this.#closed.signal });
        this.#round.add(push);
      } catch {
        // Its worker is gone too, or no longer keeps it: it must push again.
        this.#closed.signal.throwIfAborted();
        this.#clock.withdraw(push.rank);
        this.#round.empty();
        return this.#rebuild(parts.filter((other) => other !== push));
      }
    }
  }

  async #update(parts: readonly PendingPush[]): Promise<void> {
    this.#gate.begin();
    clearTimeout(this.#straggling);
    this.#straggling = undefined;
    this.#stragglersMissed = false;
    const [first] = parts.toSorted((a, b) => a.rank - b.rank);
    if (!first) throw new Error("an update has no part");
    const weights = parts.reduce((sum, { weight }) => sum + weight, 0);
    const scale = (await this.#clipping(first, weights).catch(this.#giveUp)) / weights;
    const rate = first.learningRate * this.#spec.learningRate;
    const update = { rate, scale, step: this.#clock.version };
    await this.#gate.update(() => {
      this.#slab.apply(update);
      this.#applied++;
    }, this.#closed.signal);
    this.#watchStragglers();
  }

  /**
   * A due update that cannot be made: its parts count as taken, so that they are not sent again,
   * and this attempt cannot continue. All current and later waiters receive the cause.
   */
  readonly #giveUp = (cause: unknown): never => {
    const { code, message } = toAppError(cause);
    const what = `update ${this.#clock.version} of shard ${this.#spec.shard} cannot be made`;
    const reason = new AppError(code, `${what}: ${message}`, { cause });
    this.#closed.abort(reason);
    throw reason;
  };

  /** The factor by which clipping scales the gradient; the same on all shards. */
  async #clipping(first: PendingPush, weights: number): Promise<number> {
    const limit = this.#spec.maxGradientNorm;
    if (limit === undefined) return 1;
    let squares = first.squares;
    if (this.#spec.consistency.kind === "bsp") {
      const own = this.#slab.squares() / weights ** 2;
      const version = this.#clock.version;
      squares = await this.#context.exchangeNorm(this.#spec, version, own, this.#closed.signal);
    }
    return Math.min(1, limit / (Math.sqrt(squares) + 1e-6));
  }

  async #applyWithoutStragglers(): Promise<void> {
    this.#stragglersMissed = false;
    if (this.#clock.applyWithoutStragglers().length > 0) await this.#update(this.#round.empty());
  }

  /** Starts the stragglers' timeout at the first part of an update. */
  #watchStragglers(): void {
    const { stragglerMs, consistency } = this.#spec;
    if (consistency.kind !== "bsp" || stragglerMs === undefined || this.#straggling) return;
    if (this.#round.announced.length === 0 && this.#round.added.length === 0) return;
    this.#straggling = setTimeout(() => {
      this.#straggling = undefined;
      this.#stragglersMissed = true;
      this.#takeAvailable();
    }, stragglerMs);
  }

  #alone<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#work.run(() => {
      this.#closed.signal.throwIfAborted();
      return work();
    });
  }

  async #stop(reason: AppError): Promise<void> {
    this.#closed.abort(reason);
    clearTimeout(this.#straggling);
    this.#straggling = undefined;
    for (const push of this.#round.announced) push.done.reject(reason);
    await this.#work.idle();
    this.#taker.close();
  }

  #invalid(error: AppError): AppError {
    if (error.code !== "invalid_value") return error;
    this.counts.refusedInvalid++;
    this.#context.onInvalid();
    return error;
  }

  #outOfOrder(rank: number, clock: number): AppError {
    if (this.#clock.clockOf(rank) === undefined) return this.#unknownRank(rank);
    const latest = this.#clock.clockOf(rank);
    const message = `push ${clock} of rank ${rank} is out of order: its latest was ${latest}`;
    return new AppError("conflict", `${message}, and the shard has version ${this.version}`);
  }

  #unknownRank(rank: number): AppError {
    const { workers, jobId } = this.#spec;
    const message = `rank ${rank} is none of the ${workers} workers of job ${jobId}, or has left`;
    return new AppError("conflict", message);
  }
}
