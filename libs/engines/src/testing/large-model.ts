import { byteVocabulary, type LlamaShape, writeLlamaModel } from "../gguf/llama-model.ts";

const PIECE_ROWS = 64;
/** Rows and columns of tensors whose rows are all different. */
const MAX_OWN = 1_024;

/**
 * Writes a llama model of any size, F32, as fast as the disk takes it: large tensors repeat a few
 * random rows. Its vocabulary is the bytes, if no other is given.
 */
export async function writeLargeModel(
  path: string,
  shape: LlamaShape,
  vocabulary = byteVocabulary([[" ", "t"]]),
): Promise<void> {
  let state = 7;
  const random = () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 30 - 1;
  };
  await writeLlamaModel(path, {
    name: "large random model",
    shape,
    vocabulary,
    type: "F32",
    weights: (name, columns, rows) => {
      if (name.endsWith("_norm")) return new Float32Array(columns).fill(1);
      const scale = 1.7 / Math.sqrt(columns);
      const isOwn = rows <= MAX_OWN && columns <= MAX_OWN;
      const values = Float32Array.from(
        { length: columns * (isOwn ? rows : Math.min(rows, PIECE_ROWS)) },
        () => Math.fround(scale * random()),
      );
      return isOwn ? values : pieces(columns, rows, values);
    },
  });
}

/** Pieces of a tensor, all with the same few random rows. */
function* pieces(columns: number, rows: number, values: Float32Array): Generator<Float32Array> {
  for (let at = 0; at < rows; at += PIECE_ROWS) {
    yield values.subarray(0, Math.min(PIECE_ROWS, rows - at) * columns);
  }
}
