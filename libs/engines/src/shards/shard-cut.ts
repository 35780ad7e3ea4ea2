import { strict as assert } from "node:assert";
import type { GgufValue } from "../gguf/gguf-format.ts";
import { type GgufEntry, layOutGguf } from "../gguf/gguf-header.ts";
import type { GgufTensorInfo } from "../gguf/gguf-reader.ts";
import { type CuttableModel, numberValue } from "./cut-rules.ts";

/** Consecutive blocks of a model: from the first to before the other. */
export interface BlockRange {
  readonly from: number;
  readonly to: number;
}

/** Bytes of the model's file that a shard's file has at another place. */
export interface SourceRange {
  /** In the model's file. */
  readonly source: number;
  /** In the shard's file. */
  readonly target: number;
  readonly bytes: number;
}

/**
 * A shard as a GGUF file: a header of its own, ranges of the model's file, and holes between them,
 * which read as zeros. The library loads it as an ordinary model of fewer blocks.
 */
export interface ShardCut {
  readonly header: Uint8Array;
  /** In the order of the shard's file. */
  readonly ranges: readonly SourceRange[];
  /** The size of the shard's file, holes included. */
  readonly sizeBytes: number;
  /** Bytes of all ranges, which a worker has to fetch. */
  readonly sourceBytes: number;
}

/** A tensor of a shard; without a source it is a hole. */
interface Piece extends GgufEntry {
  readonly source: number | undefined;
}

/** A type of few bytes that the CPU backend does not repack, which would copy the hole. */
const HOLE_TYPE = "Q4_1";
const HOLE_BLOCK_ITEMS = 32;
const HOLE_BLOCK_BYTES = 20;
/** Rows of the vocabulary that a shard between others has, since it sees no token. */
const NO_VOCABULARY_ROWS = 32;
const BLOCK = /^blk\.(\d+)\.(.*)$/;

/**
 * Cuts the blocks `[from, to)` out of a model:
 *
 * - Blocks count from 0, and arrays with one value for each block are cut too.
 * - A shard that is not the last has one block of zeros more, whose input is its result.
 * - Every shard has `token_embd.weight`, which the library requires: with its values in the first,
 *   and in the last where it is the output too.
 * - The last alone has the tokenizer, whose tables take memory: the others see numbers of tokens.
 */
export function cutShard(model: CuttableModel, { from, to }: BlockRange): ShardCut {
  const isFirst = from === 0;
  const isLast = to === model.blocks;
  const isLegal = (block: number) => model.cuts.includes(block);
  assert(from < to && (isFirst || isLegal(from)) && (isLast || isLegal(to)), `${from} to ${to}`);
  const isMiddle = !isFirst && !isLast;
  const pieces = model.file.tensors.flatMap((tensor) => piecesOf(model, tensor, { from, to }));
  const metadata = metadataOf(model, { from, to });
  const tensors = isMiddle ? pieces.map(withoutVocabulary) : pieces;
  const { header, places, sizeBytes } = layOutGguf(metadata, tensors);
  const ranges = tensors.flatMap(({ source }, i) => {
    const { offset: target, sizeBytes: bytes } = places[i]!;
    return source === undefined ? [] : [{ source, target, bytes }];
  });
  const sourceBytes = ranges.reduce((sum, { bytes }) => sum + bytes, 0);
  return { header, ranges, sizeBytes, sourceBytes };
}

function piecesOf(
  { file, blocks }: CuttableModel,
  tensor: GgufTensorInfo,
  { from, to }: BlockRange,
): Piece[] {
  const { name, shape, type, offset } = tensor;
  const isFirst = from === 0;
  const isLast = to === blocks;
  const whole: Piece = { name, shape, type, source: offset };
  const [, digits, rest] = BLOCK.exec(name) ?? [];
  if (digits !== undefined) {
    const block = Number(digits);
    if (block < from || block >= to) return [];
    const own = { ...whole, name: `blk.${block - from}.${rest}` };
    // With the shapes of the block before it.
    const isBeforeTap = !isLast && block === to - 1;
    return isBeforeTap ? [own, hole({ ...whole, name: `blk.${to - from}.${rest}` })] : [own];
  }
  if (name === "token_embd.weight") {
    const isTied = !file.tensors.some((other) => other.name === "output.weight");
    return [isFirst || (isLast && isTied) ? whole : hole(whole)];
  }
  if (name === "output_norm.weight") return [isLast ? whole : hole(whole)];
  if (name.startsWith("output")) return isLast ? [whole] : [];
  // Factors of the positions and what else belongs to every block.
  return [whole];
}

/** Vectors keep their type, since the library multiplies by them as they are. */
function hole(piece: Piece): Piece {
  const type = isHoleMatrix(piece.shape) ? HOLE_TYPE : piece.type;
  return { ...piece, type, source: undefined };
}

function isHoleMatrix([columns = 0, ...rows]: readonly number[]): boolean {
  return rows.length > 0 && columns % HOLE_BLOCK_ITEMS === 0;
}

/** What zeros in place of the tensor take in memory: the library reads them as it does weights. */
export function holeBytes({ shape, sizeBytes = 0 }: GgufTensorInfo): number {
  if (!isHoleMatrix(shape)) return sizeBytes;
  const items = shape.reduce((product, length) => product * length, 1);
  return (items / HOLE_BLOCK_ITEMS) * HOLE_BLOCK_BYTES;
}

function withoutVocabulary(piece: Piece): Piece {
  if (piece.name !== "token_embd.weight") return piece;
  return { ...piece, shape: [piece.shape[0]!, NO_VOCABULARY_ROWS] };
}

function metadataOf(
  { file, architecture, blocks }: CuttableModel,
  { from, to }: BlockRange,
): Map<string, GgufValue> {
  const metadata = new Map(file.metadata);
  const key = (name: string) => `${architecture}.${name}`;
  if (to < blocks) {
    for (const name of file.metadata.keys()) {
      if (name.startsWith("tokenizer.")) metadata.delete(name);
    }
    metadata.set("tokenizer.ggml.model", { type: "string", value: "no_vocab" });
    const embedding = file.tensors.find(({ name }) => name === "token_embd.weight");
    const value = from === 0 ? (embedding?.shape[1] ?? 0) : NO_VOCABULARY_ROWS;
    metadata.set(key("vocab_size"), { type: "uint32", value });
  }
  const count = to - from + (to === blocks ? 0 : 1);
  metadata.set(key("block_count"), { type: "uint32", value: count });
  // The first shard has scaled the embeddings.
  if (from > 0 && metadata.has(key("embedding_scale"))) {
    metadata.set(key("embedding_scale"), { type: "float32", value: 1 });
  }
  const dense = metadata.get(key("leading_dense_block_count"));
  if (dense) {
    const value = Math.max(0, numberValue(dense) - from);
    metadata.set(key("leading_dense_block_count"), { type: "uint32", value });
  }
  for (const [name, value] of metadata) {
    if (!name.startsWith(`${architecture}.`) || value.type !== "array") continue;
    if (value.value.length === blocks) metadata.set(name, cutArray(value, { from, to }, count));
  }
  return metadata;
}

/** The block after the last of a shard is like it. */
function cutArray(
  value: Extract<GgufValue, { type: "array" }>,
  { from, to }: BlockRange,
  count: number,
): GgufValue {
  const own = value.value.slice(from, to);
  const filled = Array.from({ length: count }, (_, i) => own[i] ?? own.at(-1));
  return { ...value, value: filled } as GgufValue;
}
