import { AppError } from "@heddle/base/errors";
import type { Parameters } from "@heddle/training/parameter-client";
import { bytesOf, type ShardLayout } from "../shards/shard-layout.ts";
import type { DataSink } from "./data-connection.ts";
import type { DataHead } from "./data-frames.ts";

/** Receives a shard's slab directly into the tensors. */
export class SlabScatter implements DataSink {
  readonly #bytes: number;
  readonly #targets: readonly Target[];
  #target = 0;
  /** The bytes that were received for the current target. */
  #got = 0;
  #total = 0;

  constructor(layout: ShardLayout, into: Parameters) {
    this.#bytes = layout.elements * 4;
    this.#targets = targetsOf(layout, into);
  }

  begin({ bytes }: DataHead): void {
    if (bytes === this.#bytes) return;
    throw new AppError(
      "invalid_value",
      `a shard has ${bytes} bytes of parameters and this worker's plan says ${this.#bytes}: ` +
        "all workers of a job must have the same model",
    );
  }

  space(): Uint8Array {
    return this.#targets[this.#target]?.subarray(this.#got) ?? new Uint8Array();
  }

  filled(bytes: number): void {
    this.#total += bytes;
    this.#got += bytes;
    if (this.#got < (this.#targets[this.#target]?.length ?? 0)) return;
    this.#target++;
    this.#got = 0;
  }

  /** Takes bytes from elsewhere; throws an AppError `invalid_value` where they are too many. */
  copy(bytes: Uint8Array): void {
    let at = 0;
    while (at < bytes.length) {
      const space = this.space();
      if (space.length === 0) this.begin({ version: 0, bytes: this.#total + bytes.length });
      const count = Math.min(space.length, bytes.length - at);
      space.set(bytes.subarray(at, at + count));
      this.filled(count);
      at += count;
    }
  }

  /** Throws an AppError `invalid_value` where bytes are missing. */
  end(): void {
    this.begin({ version: 0, bytes: this.#total });
  }
}

type Target = Uint8Array;

function targetsOf(layout: ShardLayout, into: Parameters): Target[] {
  const targets: Target[] = [];
  let at = 0;
  const gap = (to: number) => {
    if (to > at) targets.push(new Uint8Array((to - at) * 4));
  };
  for (const { parameter, begin, end, offset } of layout.segments) {
    gap(offset);
    targets.push(bytesOf(into[parameter] as Float32Array, begin, end));
    at = offset + end - begin;
  }
  gap(layout.elements);
  return targets;
}
