import {
  type KernelMemory,
  type Kernels,
  kernelMemory,
  loadKernels,
} from "@heddle/kernels/kernels";
import { toTopK } from "@heddle/training/compression/top-k";
import type { Parameters } from "@heddle/training/parameter-client";
import {
  type Compression,
  compressedBytes,
  SLICE_ELEMENTS,
  scaleBytes,
} from "../shards/compression.ts";
import { bytesOf, type ShardLayout, slabPieces } from "../shards/shard-layout.ts";
import { notFiniteError } from "./part-adder.ts";

/** The encoded part of one shard; the pieces must not change until the part is released. */
export interface EncodedPart {
  readonly bytes: number;
  readonly pieces: readonly Uint8Array[];
}

export interface EncoderOptions {
  readonly compression: Compression;
  /** For top-k, the share of the elements that is sent, in 0..1. */
  readonly topkFraction: number;
}

/**
 * Encodes one worker's parts for one shard. The error of an encoding is kept and added to the next
 * part (error feedback, Stich et al., 2018). Without compression the pieces are views of the
 * tensors.
 */
export class PartEncoder {
  readonly #layout: ShardLayout;
  readonly #options: EncoderOptions;
  readonly #memory: KernelMemory | undefined;
  readonly #kernels: Kernels | undefined;

  constructor(layout: ShardLayout, options: EncoderOptions) {
    this.#layout = layout;
    this.#options = options;
    if (options.compression === "none") return;
    // Residual, the part, and its encoding, which is never longer.
    this.#memory = kernelMemory(3 * Math.max(1, layout.elements) * 4);
    this.#kernels = loadKernels(this.#memory);
  }

  /**
   * Throws an AppError `invalid_value` for a value that is not finite, where an encoding would hide
   * it.
   */
  encode(part: Parameters): EncodedPart {
    const { compression } = this.#options;
    if (!this.#memory || !this.#kernels || compression === "none") return this.plain(part);
    const bytes = this.#layout.elements * 4;
    const values = this.#gather(this.#memory, part, bytes);
    // An encoding would hide it from the server, and it would stay in the residual.
    if (this.#kernels.notFinite(bytes, this.#layout.elements)) {
      throw notFiniteError(0, this.#layout.elements);
    }
    if (compression === "topk") return this.#sparse(this.#memory, values);
    this.#kernels.add(0, bytes, this.#layout.elements);
    const length = this.#encodeSlices(this.#kernels, compression, 2 * bytes);
    return { bytes: length, pieces: [new Uint8Array(this.#memory.buffer, 2 * bytes, length)] };
  }

  /** The tensors uncompressed: a job's first parameters. */
  plain(tensors: Parameters): EncodedPart {
    const pieces = [...slabPieces(this.#layout, tensors)];
    return { bytes: this.#layout.elements * 4, pieces };
  }

  #gather(memory: KernelMemory, part: Parameters, at: number): Float32Array {
    const values = new Float32Array(memory.buffer, at, this.#layout.elements);
    for (const { parameter, begin, end, offset } of this.#layout.segments) {
      values.set((part[parameter] as Float32Array).subarray(begin, end), offset);
    }
    return values;
  }

  /** The residual includes the part; afterwards it is the error of both. */
  #encodeSlices(kernels: Kernels, kind: "bf16" | "int8", to: number): number {
    let out = to;
    for (let begin = 0; begin < this.#layout.elements; begin += SLICE_ELEMENTS) {
      const count = Math.min(SLICE_ELEMENTS, this.#layout.elements - begin);
      const residual = begin * 4;
      if (kind === "bf16") {
        kernels.toBf16(out, residual, count);
        kernels.addBf16(residual, out, count, -1);
      } else {
        const integers = out + scaleBytes(count);
        kernels.toInt8(integers, out, residual, count);
        kernels.addInt8(residual, integers, out, count, -1);
      }
      out += compressedBytes(kind, count);
    }
    return out - to;
  }

  #sparse(memory: KernelMemory, values: Float32Array): EncodedPart {
    const residual = new Float32Array(memory.buffer, 0, values.length);
    const count = Math.max(1, Math.ceil(values.length * this.#options.topkFraction));
    const { indices, values: sent } = toTopK(values, residual, count);
    const pairs = new Uint32Array(indices.length * 2);
    const numbers = new Float32Array(pairs.buffer);
    for (const [i, index] of indices.entries()) {
      pairs[2 * i] = index;
      numbers[2 * i + 1] = sent[i] ?? 0;
    }
    return { bytes: pairs.length * 4, pieces: [bytesOf(numbers, 0, pairs.length)] };
  }
}
