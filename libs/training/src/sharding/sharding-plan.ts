import type { TensorSpec } from "../executable.ts";
import { bad } from "../ir/shapes.ts";
import { elementCount } from "../ir/value.ts";

/** A piece of a parameter, the unit that moves between workers and servers. */
export interface Partition {
  readonly parameter: string;
  /** In elements of the flattened parameter. */
  readonly begin: number;
  readonly end: number;
  /** Which server holds it. */
  readonly shard: number;
  /** Where it lies in that server's slab, in elements; a multiple of 256. */
  readonly offset: number;
}

export interface ShardingPlan {
  /** In the parameters' order, pieces ascending. */
  readonly partitions: readonly Partition[];
  /** Elements of each server's slab. */
  readonly slabElements: readonly number[];
}

/** Elements of a partition: 4 MiB of float32. */
export const PARTITION_ELEMENTS = 1024 * 1024;
/** Pieces begin at multiples of an int8 block, so that kernels never cross one. */
const ALIGNMENT = 256;

/**
 * Cuts parameters into pieces of at most 4 MiB and gives each, the largest first, to the server with
 * the least so far. Deterministic: the same parameters and number of servers give the same plan.
 * Throws an AppError `invalid_value` without servers.
 */
export function planShards(parameters: readonly TensorSpec[], shards: number): ShardingPlan {
  if (!(Number.isInteger(shards) && shards > 0)) {
    throw bad(`a model needs at least one parameter server, got ${shards}`);
  }
  const pieces = parameters.flatMap(({ name, shape }) => cut(name, elementCount(shape)));
  const slabElements = new Array<number>(shards).fill(0);
  const placed = new Map<Piece, Partition>();
  const largestFirst = pieces.toSorted((a, b) => b.end - b.begin - (a.end - a.begin));
  for (const piece of largestFirst) {
    const shard = slabElements.indexOf(Math.min(...slabElements));
    const offset = slabElements[shard] ?? 0;
    placed.set(piece, { ...piece, shard, offset });
    slabElements[shard] = offset + aligned(piece.end - piece.begin);
  }
  return { partitions: pieces.map((piece) => placed.get(piece) as Partition), slabElements };
}

type Piece = Pick<Partition, "parameter" | "begin" | "end">;

function cut(parameter: string, elements: number): Piece[] {
  const count = Math.ceil(elements / PARTITION_ELEMENTS);
  return Array.from({ length: count }, (_, i) => ({
    parameter,
    begin: i * PARTITION_ELEMENTS,
    end: Math.min(elements, (i + 1) * PARTITION_ELEMENTS),
  }));
}

function aligned(elements: number): number {
  return Math.ceil(elements / ALIGNMENT) * ALIGNMENT;
}
