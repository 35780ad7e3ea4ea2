import type { TensorSpec } from "@heddle/training/executable";
import type { Parameters } from "@heddle/training/parameter-client";
import type { ParameterRange } from "@heddle/training/sharding/fragments";
import { planShards } from "@heddle/training/sharding/sharding-plan";

/** A run of one parameter's elements, and its place in a shard's slab. */
export interface Segment extends ParameterRange {
  /** In elements of the slab. */
  readonly offset: number;
}

/** One shard's content: `elements` in all, a multiple of 256; gaps between segments are zeros. */
export interface ShardLayout {
  readonly segments: readonly Segment[];
  readonly elements: number;
}

/** The layouts of all shards of a job, each by offset; the shards of one fragment are adjacent. */
export function shardLayouts(
  parameters: readonly TensorSpec[],
  shards: number,
  fragments = 1,
): ShardLayout[] {
  const { partitions, slabElements } = planShards(parameters, shards, fragments);
  return slabElements.map((elements, shard) => ({
    elements,
    segments: partitions
      .filter((piece) => piece.shard === shard)
      .toSorted((a, b) => a.offset - b.offset)
      .map(({ parameter, begin, end, offset }) => ({ parameter, begin, end, offset })),
  }));
}

const ZEROS = new Uint8Array(1024);

/**
 * A shard's part of these tensors in the order of the slab: views of them, and zeros in the gaps.
 */
export function* slabPieces(layout: ShardLayout, tensors: Parameters): Generator<Uint8Array> {
  let at = 0;
  for (const { parameter, begin, end, offset } of layout.segments) {
    if (offset > at) yield ZEROS.subarray(0, (offset - at) * 4);
    yield bytesOf(tensors[parameter] as Float32Array, begin, end);
    at = offset + end - begin;
  }
  if (layout.elements > at) yield ZEROS.subarray(0, (layout.elements - at) * 4);
}

/** The bytes of some elements. */
export function bytesOf(values: Float32Array, begin: number, end: number): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset + begin * 4, (end - begin) * 4);
}
