import type { TokenLogprob } from "@heddle/contracts/engine";
import { expect } from "vitest";

/**
 * The largest difference of log-probabilities that rounding makes. Kernels round by the size of a call, and the cache keeps half precision; a cell of
 * another sequence changes them by whole numbers.
 */
const NEAR = 0.05;
/** This many of the most likely tokens are compared; a request needs several more `topLogprobs`. */
const COMPARED = 5;
export const TOP_LOGPROBS = 20;

/**
 * For tests: compares answers that calls of other sizes gave. The scores must be near up to the first
 * token that differs, with it, as a tie or draw may tip there. Gives how many tokens are the same.
 */
export function expectNear(
  answer: readonly TokenLogprob[],
  expected: readonly TokenLogprob[],
): number {
  for (const [i, scores] of answer.entries()) {
    const other = expected[i];
    if (other === undefined) return i;
    const theirs = logprobsOf(other);
    for (const [token, logprob] of [...logprobsOf(scores)].slice(0, COMPARED)) {
      const difference = Math.abs(logprob - (theirs.get(token) ?? Number.NEGATIVE_INFINITY));
      expect(difference, `token [${token}] at ${i}`).toBeLessThan(NEAR);
    }
    // Tokens that are parts of a character have one text.
    if (spelling(scores) !== spelling(other)) return i;
  }
  return answer.length;
}

const spelling = ({ bytes }: Pick<TokenLogprob, "bytes">) => bytes.join(" ");

/** The scores of the most likely tokens, by their bytes; tokens without text are left out. */
function logprobsOf({ top }: TokenLogprob): Map<string, number> {
  const spelled = top.filter(({ bytes }) => bytes.length > 0);
  return new Map(spelled.map(({ bytes, logprob }) => [spelling({ bytes }), logprob]));
}
