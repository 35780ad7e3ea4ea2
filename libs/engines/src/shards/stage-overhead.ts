import { BATCH_TOKENS } from "../llama/engine-thread/batch.ts";
import { type CuttableModel, numberValue } from "./cut-rules.ts";

// Measured with llama.cpp v0.5.0 on Linux: resident memory beside weights and cache, after calls
// that filled batches. Calls of the last stage had a grammar and log-probabilities.

/** A process that only computes. */
const EARLIER_BYTES = 80 * 2 ** 20;
/** The engine's process, with its threads for prompts and grammars. */
const ENGINE_BYTES = 150 * 2 ** 20;
/** The engine's bytes per word: tables of the tokenizer and of grammars, and rows of logits. */
const BYTES_PER_WORD = 1_200;
/** Values of a batch's row that are there at once, in rows of the residual stream and in wide ones. */
const NARROW_ROWS = 9;
const WIDE_ROWS = 3.5;
/** The attention mask's bytes per row of the batch and token of the cache, as f32 and as f16. */
const MASK_BYTES = 6;
const F32_BYTES = 4;

/** Memory of a stage's process beside the weights and the cache. */
export interface StageOverhead {
  /** The bytes of a stage that is not the last. */
  readonly earlier: number;
  /** The bytes of the last stage, equal to those of an engine with the whole model. */
  readonly last: number;
}

export function stageOverhead(
  { file, architecture }: CuttableModel,
  kvTokens: number,
): StageOverhead {
  const number = (name: string) => numberValue(file.metadata.get(`${architecture}.${name}`));
  const experts = number("expert_used_count") || 1;
  let [words, widest] = [0, 0];
  for (const { name, shape } of file.tensors) {
    const [columns = 0, rows = 0, ofExperts] = shape;
    if (name === "token_embd.weight") words = rows;
    if (!name.startsWith("blk.")) continue;
    widest = Math.max(widest, Math.max(columns, rows) * (ofExperts === undefined ? 1 : experts));
  }
  const row = NARROW_ROWS * number("embedding_length") + WIDE_ROWS * widest;
  const buffers = BATCH_TOKENS * (F32_BYTES * row + MASK_BYTES * kvTokens);
  return {
    earlier: EARLIER_BYTES + buffers,
    last: ENGINE_BYTES + buffers + BYTES_PER_WORD * words,
  };
}
