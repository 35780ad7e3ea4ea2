import { type Random, seededRandom } from "@heddle/base/random";
import type { GgufValue } from "./gguf-format.ts";
import {
  type ByteVocabulary,
  byteVocabulary,
  type LlamaShape,
  writeLlamaModel,
} from "./llama-model.ts";

/** The shape of the model; the same as no real one. */
export const SHAPE: Omit<LlamaShape, "contextTokens"> = {
  embedding: 96,
  blocks: 2,
  heads: 4,
  kvHeads: 2,
  feedForward: 256,
  normEpsilon: 1e-5,
  ropeBase: 10_000,
};

interface TinyShape {
  readonly contextTokens?: number;
  readonly blocks?: number;
  /** The number of attention heads; keys and values have one. */
  readonly heads?: number;
}

/** What may differ from the ordinary tiny model. */
interface TinyModelOptions extends TinyShape {
  readonly seed?: number;
  /** Null for a file without one. */
  readonly chatTemplate?: string | null;
  /** Other texts for tokens, by their ordinary texts. */
  readonly controls?: Readonly<Record<string, string>>;
  /** Another vocabulary, and what the file says of it in place of what it says of bytes with merges. */
  readonly vocabulary?: ByteVocabulary;
  readonly metadata?: ReadonlyMap<string, GgufValue>;
  /** Changes the weights of a tensor, row after row, before they are written. */
  readonly change?: (name: string, weights: Float32Array) => void;
}

/**
 * Writes a llama model of random weights (0.3 M parameters, F16, 0.6 MB) with a ChatML template.
 * Its byte-level BPE vocabulary encodes any text and decodes any tokens; its answers are noise.
 * The same seed gives the same bytes on every machine.
 */
export async function writeTinyModel(path: string, options: TinyModelOptions = {}): Promise<void> {
  const { seed = 1234, contextTokens = 4096, chatTemplate, controls = {} } = options;
  const { blocks = SHAPE.blocks, heads } = options;
  const attention = heads === undefined ? {} : { heads, kvHeads: 1 };
  const vocabulary = options.vocabulary ?? byteVocabulary(frequentPairs());
  const random = seededRandom(seed);
  await writeLlamaModel(path, {
    name: "tiny random model",
    shape: { ...SHAPE, ...attention, blocks, contextTokens },
    vocabulary: {
      ...vocabulary,
      tokens: vocabulary.tokens.map((text) => controls[text] ?? text),
    },
    chatTemplate,
    metadata: options.metadata,
    type: "F16",
    weights: (name, columns, rows) => {
      if (name.endsWith("_norm")) return new Float32Array(columns).fill(1);
      const weights = bellShaped(columns * rows, deviationOf(name, columns), random);
      options.change?.(name, weights);
      return weights;
    },
  });
}

/** Frequent English pairs of letters, the space before a word among the first. */
function frequentPairs(): [string, string][] {
  const firsts = [" ", ..."etaoinshrdlu"];
  return firsts.flatMap((first) =>
    [..."etaoinshrdlucm"].map((second): [string, string] => [first, second]),
  );
}

function deviationOf(name: string, columns: number): number {
  if (name === "token_embd") return 0.5;
  return (name === "output" ? 1.5 : 1) / Math.sqrt(columns);
}

/**
 * Nearly normal numbers of mean 0 and the given standard deviation: each sums four uniform ones.
 * A sum, unlike a logarithm or a cosine, is the same to the last bit on every machine.
 */
export function bellShaped(length: number, deviation: number, random: Random): Float32Array {
  const scale = deviation * Math.sqrt(3);
  return Float32Array.from(
    { length },
    () => (random() + random() + random() + random() - 2) * scale,
  );
}
