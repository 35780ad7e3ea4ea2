import { basename, dirname } from "node:path";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import type { KernelMemory } from "@heddle/kernels/kernels";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import type { Parameters } from "@heddle/training/parameter-client";
import { ShardSlab } from "../../../apps/parameter-server/dist/slab/shard-slab.js";
import type { Checker } from "../checker.ts";
import type { SimulatedProcess } from "../simulated-process.ts";
import { areEqual, describeCells } from "./cells.ts";
import { ShardRecord } from "./shard-record.ts";

/** A message between a server and the thread of one of its shards. */
export interface ThreadMessage {
  readonly call?: number;
  readonly name?: string;
  readonly argument?: unknown;
  readonly result?: unknown;
  readonly error?: unknown;
}

/** A trainer, and its node's number in the job. */
export interface WatchedTrainer extends Pick<TrainerOrders, "jobId" | "attempt" | "rank"> {
  readonly node: number;
  /** Tasks of its node, whose parts go together. */
  readonly members: number;
  readonly process: SimulatedProcess;
}

interface Piece {
  readonly version: number;
  readonly cells: Float32Array;
}

/** What the trainers of an attempt have done. */
interface Attempt {
  /** Rounds that its first parameters contain. */
  done: number;
  /** Keyed by node: the latest round whose push has begun. */
  readonly begun: Map<number, number>;
  readonly shards: Map<number, ShardRecord>;
  /** Rank 0, while it trains. */
  leader?: WatchedTrainer | undefined;
}

/** What must hold for the parameters of all jobs, by the servers' memories and the trainers' calls. */
export class ShardOracle {
  readonly checker: Checker;
  readonly #nowUs: () => number;
  readonly #byMemory = new WeakMap<KernelMemory, ShardRecord>();
  readonly #attempts = new Map<string, Attempt>();
  /** Keyed by job, checkpoint and shard: what was written, the latest last. */
  readonly #pieces = new Map<string, Piece[]>();
  /** Updates, restores, pieces of checkpoints. */
  readonly counts = { updates: 0, restored: 0, pieces: 0 };

  constructor(checker: Checker, nowUs: () => number) {
    this.checker = checker;
    this.#nowUs = nowUs;
  }

  /** Follows the updates of all slabs, until the result is called. */
  watchUpdates(): () => void {
    const { prototype } = ShardSlab;
    const { apply } = prototype;
    const onUpdate = (memory: KernelMemory) => this.#updated(memory);
    prototype.apply = function (this: ShardSlab, update) {
      apply.call(this, update);
      onUpdate(this.memory);
    };
    return () => {
      prototype.apply = apply;
    };
  }

  thread(spec: ShardSpec, process: SimulatedProcess): ShardWatch {
    return new ShardWatch(this, spec, process);
  }

  trainer(trainer: WatchedTrainer, done: number): TrainerWatch {
    const attempt = this.attempt(trainer);
    attempt.done = Math.min(attempt.done, done);
    if (trainer.rank === 0) attempt.leader = trainer;
    const begun = new Set([...attempt.shards.values()].map((shard) => shard.begun));
    this.checker.demand(
      begun.size <= 1,
      "a checkpoint is whole",
      () => `${trainer.jobId}/${trainer.attempt} begins with versions ${[...begun].join(", ")}`,
    );
    return new TrainerWatch(this, trainer);
  }

  attempt({ jobId, attempt }: Pick<ShardSpec, "jobId" | "attempt">): Attempt {
    const key = `${jobId}/${attempt}`;
    const known = this.#attempts.get(key);
    if (known) return known;
    const fresh = { done: Number.POSITIVE_INFINITY, begun: new Map(), shards: new Map() };
    this.#attempts.set(key, fresh);
    return fresh;
  }

  opened(spec: ShardSpec, memory: KernelMemory): ShardRecord {
    const record = new ShardRecord(spec, memory, { checker: this.checker, nowUs: this.#nowUs });
    this.#byMemory.set(memory, record);
    this.attempt(spec).shards.set(spec.shard, record);
    return record;
  }

  reopened(record: ShardRecord, spec: ShardSpec): void {
    record.begin(spec, record.begun + record.versions.length - 1);
    this.attempt(spec).shards.set(spec.shard, record);
  }

  restored(record: ShardRecord, name: string, version: number): void {
    this.counts.restored++;
    record.begin(record.spec, version);
    const pieces = this.#piecesOf(record.spec, name);
    this.checker.demand(
      pieces.some((piece) => piece.version === version && areEqual(piece.cells, record.cells)),
      "a restored shard has what the checkpoint has",
      () => `${record.name} from ${name}: ${describeCells(record.cells)} as version ${version}`,
    );
  }

  wrote(record: ShardRecord, path: string, version: number): void {
    this.counts.pieces++;
    const cells = record.checkPiece(path, version);
    this.#piecesOf(record.spec, basename(dirname(path))).push({ version, cells });
  }

  closed(record: ShardRecord): void {
    const { leader, shards } = this.attempt(record.spec);
    const isInUse = leader?.process.isAlive && shards.get(record.spec.shard) === record;
    this.checker.demand(!isInUse, "an attempt keeps its shards while it trains", () => record.name);
  }

  #updated(memory: KernelMemory): void {
    const record = this.#byMemory.get(memory);
    if (!record) return;
    this.counts.updates++;
    const { done, begun } = this.attempt(record.spec);
    record.updated((node) => (begun.get(node) ?? done) - done);
  }

  #piecesOf({ jobId, shard }: ShardSpec, name: string): Piece[] {
    const key = `${jobId}/${name}/${shard}`;
    const known = this.#pieces.get(key) ?? [];
    this.#pieces.set(key, known);
    return known;
  }
}

/** Follows the messages between a server and one shard's thread. */
export class ShardWatch {
  readonly #oracle: ShardOracle;
  readonly #spec: ShardSpec;
  readonly #thread: SimulatedProcess;
  readonly #calls = new Map<number, ThreadMessage>();
  #record: ShardRecord | undefined;

  constructor(oracle: ShardOracle, spec: ShardSpec, thread: SimulatedProcess) {
    this.#oracle = oracle;
    this.#spec = spec;
    this.#thread = thread;
  }

  calls(message: ThreadMessage): void {
    if (message.call !== undefined) this.#calls.set(message.call, message);
  }

  answers({ call = 0, result, error }: ThreadMessage): void {
    if (call === 0) this.#record = this.#oracle.opened(this.#spec, result as KernelMemory);
    const { name, argument } = this.#calls.get(call) ?? {};
    this.#calls.delete(call);
    if (!this.#record || error) return;
    if (name === "reopen") this.#oracle.reopened(this.#record, argument as ShardSpec);
    if (name === "restore") {
      this.#oracle.restored(this.#record, (argument as { name: string }).name, Number(result));
    }
    if (name === "checkpoint") {
      const { path } = argument as { path: string };
      this.#oracle.wrote(this.#record, path, (result as { version: number }).version);
    }
  }

  /** The server ends the thread, and not the thread's own end. */
  closes(): void {
    if (this.#record && this.#thread.isAlive) this.#oracle.closed(this.#record);
  }
}

/** Follows the loop of one trainer. */
class TrainerWatch {
  readonly #oracle: ShardOracle;
  readonly #trainer: WatchedTrainer;
  /** Keyed by shard: what it has read last, and the position of that version. */
  readonly #read = new Map<number, { readonly record: ShardRecord; readonly at: number }>();
  /** The latest round whose push was answered. */
  #answered = 0;

  constructor(oracle: ShardOracle, trainer: WatchedTrainer) {
    this.#oracle = oracle;
    this.#trainer = trainer;
  }

  pushes(round: number): void {
    const { begun } = this.#oracle.attempt(this.#trainer);
    const { node } = this.#trainer;
    begun.set(node, Math.max(begun.get(node) ?? 0, round));
  }

  /** A part is in an update when it is answered, but under bsp: then once the parameters are pulled. */
  pushed(round: number): void {
    this.#answered = round;
    const { done, shards } = this.#oracle.attempt(this.#trainer);
    const { node, members } = this.#trainer;
    for (const shard of shards.values()) {
      // Of several tasks of a node one pushes for all, later.
      if (shard.spec.consistency.kind === "bsp" || members > 1) continue;
      this.#oracle.checker.demand(
        shard.applied(node) >= round - done,
        "an answered push is applied",
        () => `${shard.name}: ${shard.applied(node)} of ${round - done} of node ${node}`,
      );
    }
  }

  pulled(version: number, parameters: Parameters): void {
    const { done, shards } = this.#oracle.attempt(this.#trainer);
    for (const [shard, record] of shards) {
      const last = this.#read.get(shard);
      const from = last?.record === record ? last.at : 0;
      for (const name of record.tensors) {
        const cells = parameters[name] ?? new Float32Array();
        const at = record.find(cells, from);
        this.#oracle.checker.demand(
          at !== undefined && (!last || last.record === record),
          "a pull reads a version, and never an earlier one",
          () => `${record.name}: ${describeCells(cells)} as version ${version}`,
        );
        this.#oracle.checker.demand(
          record.spec.consistency.kind !== "bsp" || (at ?? 0) >= this.#answered - done,
          "an answered push is applied",
          () => `${record.name}: update ${at} was read after push ${this.#answered - done}`,
        );
        this.#read.set(shard, { record, at: at ?? from });
      }
    }
  }

  ends(): void {
    const attempt = this.#oracle.attempt(this.#trainer);
    if (attempt.leader?.process === this.#trainer.process) attempt.leader = undefined;
  }
}
