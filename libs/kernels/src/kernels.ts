import { KERNELS_MODULE } from "./generated/kernels-module.ts";
import { instantiate } from "./wasm-module.ts";

/** Every count is a multiple of this; slabs are padded with zeros. */
export const KERNEL_BLOCK = 256;

/**
 * The parameter server's arithmetic on one memory, as assembly/kernels.ts defines it. Pointers are
 * byte offsets, multiples of 16; counts are of float32 elements, multiples of 256.
 */
export interface Kernels {
  add(acc: number, part: number, count: number): void;
  /** Returns 1 if a sum is NaN or infinite. `first` 1 replaces the old value instead of adding. */
  addScaled(acc: number, part: number, count: number, weight: number, first: number): number;
  addBf16(acc: number, part: number, count: number, weight: number): void;
  addInt8(acc: number, part: number, scales: number, count: number, weight: number): void;
  toBf16(out: number, values: number, count: number): void;
  toInt8(out: number, scales: number, values: number, count: number): void;
  sumSquares(values: number, count: number): number;
  /** Returns 1 if an element is NaN or infinite. */
  notFinite(values: number, count: number): number;
  sgd(p: number, g: number, count: number, rate: number, scale: number): void;
  momentum(
    p: number,
    v: number,
    g: number,
    count: number,
    rate: number,
    factor: number,
    nesterov: number,
    scale: number,
  ): void;
  adam(
    p: number,
    first: number,
    second: number,
    g: number,
    count: number,
    rate: number,
    spread: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    decay: number,
    scale: number,
  ): void;
}

const PAGE_BYTES = 65_536;
/** Pages of a 32-bit memory: 4 GiB. */
const MAX_PAGES = 65_536;

/** A WebAssembly memory that threads share; it can be posted to a worker thread. */
export interface KernelMemory {
  readonly buffer: SharedArrayBuffer;
}

/** TypeScript has it only in its DOM types. */
declare const WebAssembly: {
  readonly Memory: new (limits: {
    readonly initial: number;
    readonly maximum: number;
    readonly shared: true;
  }) => KernelMemory;
};

/** A zeroed memory of at least this many bytes. Throws a RangeError above 4 GiB. */
export function kernelMemory(bytes: number): KernelMemory {
  const pages = Math.max(1, Math.ceil(bytes / PAGE_BYTES));
  if (pages > MAX_PAGES) {
    throw new RangeError(`${bytes} bytes are more than the 4 GiB of one memory`);
  }
  return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
}

/** The kernels on a memory; each thread creates its own. */
export function loadKernels(memory: KernelMemory): Kernels {
  return instantiate<Kernels>(KERNELS_MODULE, { env: { memory } });
}
