import { seededRandom } from "@heddle/base/random";
import { byteVocabulary, type LlamaShape, writeLlamaModel } from "@heddle/engines/gguf/llama-model";

/** Llama 3.1 8B's, with fewer tokens: bytes, and padding up to its vocabulary. */
const EIGHT_BILLION: LlamaShape = {
  embedding: 4096,
  blocks: 32,
  heads: 32,
  kvHeads: 8,
  feedForward: 14_336,
  contextTokens: 8192,
  normEpsilon: 1e-5,
  ropeBase: 500_000,
};
const VOCABULARY = 128_256;

/** The same in small, for rehearsals. */
const SMALL: LlamaShape = {
  ...EIGHT_BILLION,
  embedding: 128,
  blocks: 2,
  heads: 4,
  kvHeads: 2,
  feedForward: 256,
};

/** Values that fill every matrix again and again: what is timed does not depend on them. */
const TILE_VALUES = 1 << 20;

/** Writes a model of random weights, Q8_0, in the shape of an 8B model or a small one. */
export async function writeShapedModel(path: string, isSmall: boolean): Promise<LlamaShape> {
  const shape = isSmall ? SMALL : EIGHT_BILLION;
  const vocabulary = byteVocabulary([]);
  const { tokens, types } = vocabulary;
  const wanted = isSmall ? tokens.length : VOCABULARY;
  const padding = Array.from({ length: wanted - tokens.length }, (_, i) => `<padding${i}>`);
  const random = seededRandom(1);
  const tile = Float32Array.from({ length: TILE_VALUES }, () => (random() - 0.5) * 0.05);
  await writeLlamaModel(path, {
    name: "random weights",
    shape,
    vocabulary: {
      ...vocabulary,
      tokens: [...tokens, ...padding],
      types: [...types, ...padding.map(() => types.at(-1) as number)],
    },
    type: "Q8_0",
    weights: (name, columns, rows) => {
      if (name.endsWith("_norm")) return new Float32Array(columns).fill(1);
      return tiles(tile, columns * rows);
    },
  });
  return shape;
}

function* tiles(tile: Float32Array, length: number): Iterable<Float32Array> {
  for (let left = length; left > 0; left -= tile.length) {
    yield left >= tile.length ? tile : tile.subarray(0, left);
  }
}
