import { seededRandom } from "@heddle/base/random";
import type { GgufValue } from "./gguf-format.ts";
import { type GgufTensor, writeGguf } from "./gguf-writer.ts";
import { bellShaped, SHAPE } from "./tiny-model.ts";

const RANK = 4;
const ALPHA = 8;

/** The change of a matrix: b times a, times the factor. */
interface Factors {
  readonly columns: number;
  readonly rows: number;
  /** RANK rows of `columns`. */
  readonly a: Float32Array;
  /** `rows` rows of RANK. */
  readonly b: Float32Array;
  readonly rank: number;
  readonly factor: number;
}

/**
 * Writes a LoRA adapter of random factors for these blocks of the tiny model, as llama.cpp's converter does. Gives the
 * factors by the names of the matrices that they change.
 */
export async function writeTinyAdapter(
  path: string,
  seed: number,
  blocks: readonly number[] = Array.from({ length: SHAPE.blocks }, (_, i) => i),
): Promise<ReadonlyMap<string, Factors>> {
  const factors = factorsOf(seed, blocks);
  const tensors = [...factors].flatMap(([name, { columns, rows, a, b }]): GgufTensor[] => [
    { name: `${name}.weight.lora_a`, shape: [columns, RANK], type: "F32", values: () => [a] },
    { name: `${name}.weight.lora_b`, shape: [RANK, rows], type: "F32", values: () => [b] },
  ]);
  const metadata = new Map<string, GgufValue>([
    ["general.architecture", { type: "string", value: "llama" }],
    ["general.type", { type: "string", value: "adapter" }],
    ["adapter.type", { type: "string", value: "lora" }],
    ["adapter.lora.alpha", { type: "float32", value: ALPHA }],
  ]);
  await writeGguf(path, { metadata, tensors });
  return factors;
}

function factorsOf(seed: number, blocks: readonly number[]): ReadonlyMap<string, Factors> {
  const random = seededRandom(seed);
  const { embedding, feedForward } = SHAPE;
  const matrix = (columns: number, rows: number): Factors => ({
    columns,
    rows,
    a: bellShaped(columns * RANK, 1 / Math.sqrt(columns), random),
    b: bellShaped(rows * RANK, 0.25, random),
    rank: RANK,
    factor: ALPHA / RANK,
  });
  const block = (i: number): [string, Factors][] => [
    [`blk.${i}.attn_q`, matrix(embedding, embedding)],
    [`blk.${i}.ffn_down`, matrix(feedForward, embedding)],
  ];
  return new Map(blocks.flatMap(block));
}
