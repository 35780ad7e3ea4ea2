/** The log-probability of one sampled token and of the most likely ones, by the raw logits. */
export interface RowLogprobs {
  readonly logprob: number;
  /** Most likely first; ties by token id. */
  readonly topTokens: Int32Array;
  readonly topLogprobs: Float64Array;
}

/** ln of the sum of e^logit: a token's log-probability is its logit less this. */
function logSumExp(logits: Float32Array): number {
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) {
    const value = logits[i] as number;
    if (value > max) max = value;
  }
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp((logits[i] as number) - max);
  return max + Math.log(sum);
}

/** The `count` most likely tokens, most likely first; ties by token id. */
export function topTokens(logits: Float32Array, count: number): Int32Array {
  const top = new Int32Array(Math.min(count, logits.length));
  let size = 0;
  for (let token = 0; token < logits.length; token++) {
    const value = logits[token] as number;
    if (size === top.length && (size === 0 || value <= (logits[top[size - 1] as number] as number)))
      continue;
    if (size < top.length) size++;
    let at = size - 1;
    while (at > 0 && (logits[top[at - 1] as number] as number) < value) {
      top[at] = top[at - 1] as number;
      at--;
    }
    top[at] = token;
  }
  return top;
}

/** What is kept of a row before bias and penalties change it; `finishLogprobs` completes it. */
interface RawRow {
  readonly logits: Float32Array;
  readonly total: number;
  readonly top: Int32Array;
}

/** Reads what log-probabilities need from raw logits; copies them, as sampling changes them. */
export function captureRow(logits: Float32Array, count: number): RawRow {
  return { logits: logits.slice(), total: logSumExp(logits), top: topTokens(logits, count) };
}

/** The log-probabilities of a token that is known, as a prompt's are. */
export function rowLogprobs(logits: Float32Array, count: number, token: number): RowLogprobs {
  return finishLogprobs({ logits, total: logSumExp(logits), top: topTokens(logits, count) }, token);
}

/** The log-probabilities of a token that was drawn from a captured row. */
export function finishLogprobs(row: RawRow, token: number): RowLogprobs {
  return {
    logprob: (row.logits[token] as number) - row.total,
    topTokens: row.top,
    topLogprobs: Float64Array.from(row.top, (id) => (row.logits[id] as number) - row.total),
  };
}
