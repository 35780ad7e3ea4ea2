import type { Random } from "@heddle/base/random";
import type { Tensors } from "../backend.ts";
import { bad } from "../ir/shapes.ts";

/** Returns the data of `steps` steps at once, each tensor with a leading axis of `steps`. */
export type BatchSource = (steps: number) => Tensors;

/**
 * The worker that a source is for: all draw the same positions for a step of the whole job, and
 * each takes its share. So k workers see the data of one worker whose batches are k times as large.
 */
export interface WorkerShare {
  readonly rank: number;
  readonly workers: number;
}

const SOLE: WorkerShare = { rank: 0, workers: 1 };

/**
 * Windows of a text at random positions: `tokens` and `targets` (shifted by one), [steps, batch,
 * length]. Throws an AppError `invalid_value` where the text is shorter than a window.
 */
export function textBatches(
  text: Uint8Array | Int32Array,
  size: { readonly batch: number; readonly length: number },
  random: Random,
  share = SOLE,
): BatchSource {
  const places = text.length - size.length;
  if (places < 1) {
    throw bad(
      `the text has ${text.length} tokens; a context of ${size.length} needs at least ` +
        `${size.length + 1}: give more text or a smaller context_length`,
    );
  }
  return (steps) => {
    const chosen = drawRows(steps, size.batch, places, random, share);
    const tokens = new Int32Array(chosen.length * size.length);
    const targets = new Int32Array(chosen.length * size.length);
    for (const [row, from] of chosen.entries()) {
      tokens.set(text.subarray(from, from + size.length), row * size.length);
      targets.set(text.subarray(from + 1, from + 1 + size.length), row * size.length);
    }
    return { tokens, targets };
  };
}

/** A table of features and targets, row by row. */
export interface Rows {
  readonly features: Float32Array;
  readonly target: Float32Array | Int32Array;
  readonly count: number;
}

/** Random rows: `features` and `target`, [steps, batch, ...]. */
export function rowBatches(rows: Rows, batch: number, random: Random, share = SOLE): BatchSource {
  if (rows.count === 0) throw bad("the training data has no rows");
  return (steps) => {
    const order = drawRows(steps, batch, rows.count, random, share);
    return {
      features: pick(rows.features, rows.count, order),
      target: pick(rows.target, rows.count, order),
    };
  };
}

/**
 * Random numbers below `below`: this worker's share of the `batch` numbers for each worker and
 * step.
 */
function drawRows(
  steps: number,
  batch: number,
  below: number,
  random: Random,
  { rank, workers }: WorkerShare,
): Int32Array {
  const own = new Int32Array(steps * batch);
  for (let step = 0; step < steps; step++) {
    // The other workers' numbers are drawn too and dropped: there may be a thousand workers.
    for (let place = 0; place < workers * batch; place++) {
      const drawn = Math.floor(random() * below);
      const at = place - rank * batch;
      if (at >= 0 && at < batch) own[step * batch + at] = drawn;
    }
  }
  return own;
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
