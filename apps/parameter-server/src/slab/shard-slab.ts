import { AppError } from "@heddle/base/errors";
import {
  type KernelMemory,
  type Kernels,
  kernelMemory,
  loadKernels,
} from "@heddle/kernels/kernels";
import { addEncodedInt8, encodeInt8 } from "@heddle/parameters/data-plane/int8-slices";
import { type Accumulator, STAGING_BYTES } from "@heddle/parameters/data-plane/part-adder";
import { type PullCompression, partBytes } from "@heddle/parameters/shards/compression";
import { shardLayouts } from "@heddle/parameters/shards/shard-layout";
import { fragmentsOf, type ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { type Optimizer, optimizerSlots } from "@heddle/training/optimizers/optimizer";

/** The parameters of a slab's layout. */
export interface SlabPlan {
  /** The elements of each tensor; a multiple of 256. */
  readonly elements: number;
  readonly optimizer: Optimizer;
  readonly pullCompression: PullCompression;
}

/** The pull of a worker that holds version `held - 1`, or none where `held` is 0. */
export function pulledPieces(slab: ShardSlab, version: number, held: number): Uint8Array[] {
  if (!slab.publishes || held === 0 || held > version + 1) return [slab.pulled("whole")];
  if (held === version + 1) return [];
  return [slab.pulled(held === version ? "changes" : "whole")];
}

/** The slab of one shard. */
export function slabPlan(spec: ShardSpec): SlabPlan {
  const layout = shardLayouts(spec.parameters, spec.servers.length, fragmentsOf(spec))[spec.shard];
  const { optimizer, pullCompression = "none" } = spec;
  return { elements: layout?.elements ?? 0, optimizer, pullCompression };
}

/** One update of all parameters. */
export interface SlabUpdate {
  readonly rate: number;
  /** Multiplies the sums into the gradient: one over the weights, times the clipping factor. */
  readonly scale: number;
  /** The number of this update, from 1. */
  readonly step: number;
}

const MAX_BYTES = 2 ** 32 - 65_536;

/**
 * A shard's memory: parameters, optimizer slots, the sums of an update's parts, and staging. Where
 * pulls are compressed it also holds the published parameters and their latest changes. Threads
 * share it; each has its own ShardSlab over it.
 */
export class ShardSlab {
  readonly memory: KernelMemory;
  /** The elements of each tensor; a multiple of 256. */
  readonly elements: number;
  /** The content of a checkpoint in order: parameters first, then the optimizer's slots. */
  readonly kept: readonly string[];
  readonly #plan: SlabPlan;
  readonly #kernels: Kernels;

  /** Over an existing memory, or over a new one of zeros. */
  constructor(plan: SlabPlan, memory?: KernelMemory) {
    this.elements = plan.elements;
    this.kept = ["parameters", ...optimizerSlots(plan.optimizer)];
    this.#plan = plan;
    this.memory = memory ?? kernelMemory(ShardSlab.check(plan));
    this.#kernels = loadKernels(this.memory);
  }

  /** The required bytes of memory. Throws an AppError `invalid_value` above 4 GiB. */
  static check({ elements, optimizer, pullCompression }: SlabPlan): number {
    const published = pullCompression === "int8";
    const tensors = optimizerSlots(optimizer).length + (published ? 3 : 2);
    const changes = published ? partBytes("int8", elements) : 0;
    const bytes = tensors * elements * 4 + STAGING_BYTES + changes;
    if (bytes <= MAX_BYTES) return bytes;
    throw new AppError(
      "invalid_value",
      `a shard of ${elements} elements in ${tensors} tensors needs ${bytes} bytes: a shard has ` +
        "4 GiB at most, so give the job more parameter_servers",
    );
  }

  /** Where parts are added. */
  get accumulator(): Accumulator {
    const sums = this.#pointer(this.kept.length);
    const { memory, elements } = this;
    return { memory, elements, sums, staging: sums + elements * 4, kernels: this.#kernels };
  }

  /** The bytes of a kept tensor, by its position. */
  bytes(tensor: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, this.#pointer(tensor), this.elements * 4);
  }

  values(tensor: number): Float32Array {
    return new Float32Array(this.memory.buffer, this.#pointer(tensor), this.elements);
  }

  /** Whether pulls are compressed. */
  get publishes(): boolean {
    return this.#plan.pullCompression === "int8";
  }

  /** The data of a pull: the whole, or the changes of the latest update. */
  pulled(what: "whole" | "changes"): Uint8Array {
    if (!this.publishes) return this.bytes(0);
    const whole = this.elements * 4;
    if (what === "whole") return new Uint8Array(this.memory.buffer, this.#published, whole);
    const changes = partBytes("int8", this.elements);
    return new Uint8Array(this.memory.buffer, this.#published + whole, changes);
  }

  /** Publishes all parameters: the first ones, and those of a checkpoint. */
  publishWhole(): void {
    if (this.publishes) this.pulled("whole").set(this.bytes(0));
  }

  /** Whether every parameter is finite. */
  isFinite(): boolean {
    return this.#kernels.notFinite(this.#pointer(0), this.elements) === 0;
  }

  /** The sums' squared norm. */
  squares(): number {
    return this.#kernels.sumSquares(this.accumulator.sums, this.elements);
  }

  /** One update; where pulls are compressed its changes are published. */
  apply(update: SlabUpdate): void {
    this.#optimize(update);
    if (this.publishes) this.#publishChanges();
  }

  /**
   * The difference between the parameters and the workers' copies; the error of int8 is published
   * next time.
   */
  #publishChanges(): void {
    const { sums } = this.accumulator;
    const [published, count] = [this.#published, this.elements];
    const changes = published + count * 4;
    // The sums are unused between two updates.
    new Uint8Array(this.memory.buffer, sums, count * 4).set(this.bytes(0));
    this.#kernels.addScaled(sums, published, count, -1, 0);
    encodeInt8(this.#kernels, changes, sums, count);
    addEncodedInt8(this.#kernels, published, changes, count);
  }

  #optimize({ rate, scale, step }: SlabUpdate): void {
    const { optimizer } = this.#plan;
    const [p, first, second] = this.kept.map((_, i) => this.#pointer(i)) as [
      number,
      number,
      number,
    ];
    const { sums } = this.accumulator;
    const count = this.elements;
    if (optimizer.kind === "sgd") {
      const { momentum, nesterov } = optimizer;
      if (momentum === 0) this.#kernels.sgd(p, sums, count, rate, scale);
      else this.#kernels.momentum(p, first, sums, count, rate, momentum, nesterov ? 1 : 0, scale);
      return;
    }
    const { beta1, beta2, epsilon, weightDecay } = optimizer;
    const stepRate = rate / (1 - beta1 ** step);
    const spread = Math.sqrt(1 - beta2 ** step);
    const tensors = [p, first, second, sums, count] as const;
    const decay = rate * weightDecay;
    this.#kernels.adam(...tensors, stepRate, spread, beta1, beta2, epsilon, decay, scale);
  }

  /** After parameters, slots, sums and staging. */
  get #published(): number {
    return this.#pointer(this.kept.length + 1) + STAGING_BYTES;
  }

  #pointer(tensor: number): number {
    return tensor * this.elements * 4;
  }
}
