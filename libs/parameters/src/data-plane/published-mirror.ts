import { AppError } from "@heddle/base/errors";
import {
  type KernelMemory,
  type Kernels,
  kernelMemory,
  loadKernels,
} from "@heddle/kernels/kernels";
import type { Parameters } from "@heddle/training/parameter-client";
import { partBytes } from "../shards/compression.ts";
import type { ShardLayout } from "../shards/shard-layout.ts";
import type { DataHead } from "./data-frames.ts";
import type { CopyingSink } from "./data-route.ts";
import { addEncodedInt8 } from "./int8-slices.ts";

/**
 * A worker's copy of the parameters that one shard has published. The first pull is the whole;
 * later ones are changes in int8, whose error the shard publishes later.
 */
export class PublishedMirror {
  readonly #layout: ShardLayout;
  readonly #memory: KernelMemory;
  readonly #kernels: Kernels;
  #version: number | undefined;

  constructor(layout: ShardLayout) {
    this.#layout = layout;
    const whole = layout.elements * 4;
    this.#memory = kernelMemory(Math.max(1, whole + partBytes("int8", layout.elements)));
    this.#kernels = loadKernels(this.#memory);
  }

  /** Its version; undefined before the first pull, and after one that broke off. */
  get version(): number | undefined {
    return this.#version;
  }

  /**
   * Takes one answer: the whole, the changes since `version`, or nothing where that is the latest.
   */
  sink(): CopyingSink {
    const whole = this.#layout.elements * 4;
    const changes = partBytes("int8", this.#layout.elements);
    let head: DataHead = { version: 0, bytes: 0 };
    let got = 0;
    const begin = (next: DataHead) => {
      const known = this.#version !== undefined && next.bytes <= changes;
      if (![whole, ...(known ? [changes, 0] : [])].includes(next.bytes)) throw misfit(next, whole);
      head = next;
      if (next.bytes === whole) this.#version = undefined;
    };
    const space = () => {
      const from = head.bytes === whole ? 0 : whole;
      return new Uint8Array(this.#memory.buffer, from + got, head.bytes - got);
    };
    const filled = (bytes: number) => {
      got += bytes;
      if (got < head.bytes) return;
      if (head.bytes === changes) {
        addEncodedInt8(this.#kernels, 0, whole, this.#layout.elements);
      }
      this.#version = head.version;
    };
    const copy = (bytes: Uint8Array) => {
      if (bytes.length > head.bytes - got)
        throw misfit({ ...head, bytes: got + bytes.length }, whole);
      space().set(bytes);
      filled(bytes.length);
    };
    const end = () => {
      if (got < head.bytes) throw misfit({ ...head, bytes: got }, whole);
    };
    return { begin, space, filled, copy, end };
  }

  /** Copies it into the tensors. */
  copyTo(into: Parameters): void {
    const values = new Float32Array(this.#memory.buffer, 0, this.#layout.elements);
    for (const { parameter, begin, end, offset } of this.#layout.segments) {
      into[parameter]?.set(values.subarray(offset, offset + end - begin), begin);
    }
  }
}

function misfit({ bytes }: DataHead, whole: number): AppError {
  return new AppError(
    "invalid_value",
    `a shard answered with ${bytes} bytes, and this worker's plan has ${whole} or their changes: ` +
      "all workers of a job must have the same model and compression",
  );
}
