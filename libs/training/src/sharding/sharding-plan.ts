import type { TensorSpec } from "../executable.ts";
import { bad } from "../ir/shapes.ts";
import { fragmentRanges, type ParameterRange } from "./fragments.ts";

/** A piece of a parameter, the unit that moves between workers and servers. */
export interface Partition extends ParameterRange {
  /** The shard that holds it. */
  readonly shard: number;
  /** Its position in that shard's slab, in elements; a multiple of 256. */
  readonly offset: number;
}

export interface ShardingPlan {
  /** In the parameters' order, pieces ascending. */
  readonly partitions: readonly Partition[];
  /** Elements of each shard's slab. */
  readonly slabElements: readonly number[];
}

/** Elements of a partition: 4 MiB of float32. */
export const PARTITION_ELEMENTS = 1024 * 1024;
/** Pieces begin at multiples of an int8 block, so that kernels never cross one. */
const ALIGNMENT = 256;

/**
 * Cuts parameters into pieces of at most 4 MiB and assigns each, the largest first, to the shard
 * with the least. With fragments each has its own shards, as many as every other: the first
 * fragment's come first. Deterministic. Throws an AppError `invalid_value` without shards, and
 * where they are not a multiple of the fragments.
 */
export function planShards(
  parameters: readonly TensorSpec[],
  shards: number,
  fragments = 1,
): ShardingPlan {
  if (!(Number.isInteger(shards) && shards > 0)) {
    throw bad(`a model needs at least one parameter server, got ${shards}`);
  }
  if (shards % fragments !== 0) {
    throw bad(`${shards} shards cannot be shared by ${fragments} fragments alike`);
  }
  const each = shards / fragments;
  const slabElements = new Array<number>(shards).fill(0);
  const partitions = fragmentRanges(parameters, fragments).flatMap((ranges, fragment) =>
    placePieces(ranges.flatMap(cut), slabElements, { first: fragment * each, count: each }),
  );
  return { partitions, slabElements };
}

/** Places the pieces of one fragment, and adds them to the elements of its shards. */
function placePieces(
  pieces: readonly ParameterRange[],
  slabElements: number[],
  { first, count }: { readonly first: number; readonly count: number },
): Partition[] {
  const placed = new Map<ParameterRange, Partition>();
  const largestFirst = pieces.toSorted((a, b) => b.end - b.begin - (a.end - a.begin));
  for (const piece of largestFirst) {
    const own = slabElements.slice(first, first + count);
    const shard = first + own.indexOf(Math.min(...own));
    const offset = slabElements[shard] ?? 0;
    placed.set(piece, { ...piece, shard, offset });
    slabElements[shard] = offset + aligned(piece.end - piece.begin);
  }
  return pieces.map((piece) => placed.get(piece) as Partition);
}

/** Pieces end where 4 MiB of their parameter do, in whatever fragment they are. */
function cut({ parameter, begin, end }: ParameterRange): ParameterRange[] {
  const pieces: ParameterRange[] = [];
  for (let at = begin; at < end; ) {
    const next = Math.min(end, at - (at % PARTITION_ELEMENTS) + PARTITION_ELEMENTS);
    pieces.push({ parameter, begin: at, end: next });
    at = next;
  }
  return pieces;
}

function aligned(elements: number): number {
  return Math.ceil(elements / ALIGNMENT) * ALIGNMENT;
}
