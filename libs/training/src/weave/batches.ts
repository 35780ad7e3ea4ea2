import type { Random } from "@heddle/base/random";
import type { Tensors } from "../backend.ts";
import { bad } from "../ir/shapes.ts";

/** Gives the data of so many steps at once, each tensor with a leading axis of `steps`. */
export type BatchSource = (steps: number) => Tensors;

/**
 * Windows of a text at random places: `tokens` and `targets` (the same, one on), [steps, batch,
 * length]. Throws an AppError `invalid_value` where the text is shorter than a window.
 */
export function textBatches(
  text: Uint8Array | Int32Array,
  size: { readonly batch: number; readonly length: number },
  random: Random,
): BatchSource {
  const places = text.length - size.length;
  if (places < 1) {
    throw bad(
      `the text has ${text.length} tokens; a context of ${size.length} needs at least ` +
        `${size.length + 1}: give more text or a smaller context_length`,
    );
  }
  return (steps) => {
    const rows = steps * size.batch;
    const tokens = new Int32Array(rows * size.length);
    const targets = new Int32Array(rows * size.length);
    for (let row = 0; row < rows; row++) {
      const from = Math.floor(random() * places);
      tokens.set(text.subarray(from, from + size.length), row * size.length);
      targets.set(text.subarray(from + 1, from + 1 + size.length), row * size.length);
    }
    return { tokens, targets };
  };
}

/** A table of features with what is to be predicted, row by row. */
export interface Rows {
  readonly features: Float32Array;
  readonly target: Float32Array | Int32Array;
  readonly count: number;
}

/** Rows drawn at random: `features` and `target`, [steps, batch, ...]. */
export function rowBatches(rows: Rows, batch: number, random: Random): BatchSource {
  if (rows.count === 0) throw bad("the training data has no rows");
  return (steps) => {
    const order = Int32Array.from({ length: steps * batch }, () =>
      Math.floor(random() * rows.count),
    );
    return {
      features: pick(rows.features, rows.count, order),
      target: pick(rows.target, rows.count, order),
    };
  };
}

function pick(
  data: Float32Array | Int32Array,
  count: number,
  order: Int32Array,
): Float32Array | Int32Array {
  const width = data.length / count;
  const Data = data instanceof Int32Array ? Int32Array : Float32Array;
  const result = new Data(order.length * width);
  for (const [to, from] of order.entries()) {
    result.set(data.subarray(from * width, (from + 1) * width), to * width);
  }
  return result;
}
