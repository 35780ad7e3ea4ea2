import { AppError } from "@heddle/base/errors";
import {
  type KernelMemory,
  type Kernels,
  kernelMemory,
  loadKernels,
} from "@heddle/kernels/kernels";
import { type Accumulator, STAGING_BYTES } from "@heddle/parameters/part-adder";
import { type Optimizer, optimizerSlots } from "@heddle/training/optimizers/optimizer";

/** One update of all parameters. */
export interface SlabUpdate {
  readonly rate: number;
  /** Turns the sums into the gradient: one over the weights, and what clipping leaves. */
  readonly scale: number;
  /** The number of this update, from 1. */
  readonly step: number;
}

const MAX_BYTES = 2 ** 32 - 65_536;

/**
 * A shard's memory: parameters, what the optimizer keeps of them, the sums of an update's parts, and
 * staging. Threads share it; each makes its own ShardSlab over it.
 */
export class ShardSlab {
  readonly memory: KernelMemory;
  /** Of each tensor; a multiple of 256. */
  readonly elements: number;
  /** What a checkpoint has, in its order: parameters first, then the optimizer's slots. */
  readonly kept: readonly string[];
  readonly #optimizer: Optimizer;
  readonly #kernels: Kernels;

  /** Over a memory that is there, or over a new one of zeros. */
  constructor(elements: number, optimizer: Optimizer, memory?: KernelMemory) {
    this.elements = elements;
    this.kept = ["parameters", ...optimizerSlots(optimizer)];
    this.#optimizer = optimizer;
    this.memory = memory ?? kernelMemory(ShardSlab.check(elements, optimizer));
    this.#kernels = loadKernels(this.memory);
  }

  /** The bytes of memory that it takes. Throws an AppError `invalid_value` above 4 GiB. */
  static check(elements: number, optimizer: Optimizer): number {
    const tensors = optimizerSlots(optimizer).length + 2;
    const bytes = tensors * elements * 4 + STAGING_BYTES;
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

  /** The bytes of what is kept, by its position. */
  bytes(tensor: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, this.#pointer(tensor), this.elements * 4);
  }

  values(tensor: number): Float32Array {
    return new Float32Array(this.memory.buffer, this.#pointer(tensor), this.elements);
  }

  /** Whether every parameter is a number. */
  isFinite(): boolean {
    return this.#kernels.notFinite(this.#pointer(0), this.elements) === 0;
  }

  /** The sums' squared norm. */
  squares(): number {
    return this.#kernels.sumSquares(this.accumulator.sums, this.elements);
  }

  apply({ rate, scale, step }: SlabUpdate): void {
    const optimizer = this.#optimizer;
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

  #pointer(tensor: number): number {
    return tensor * this.elements * 4;
  }
}
