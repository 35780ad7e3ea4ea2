import { PIECE_TOKENS, wholePieces } from "../kv-cache/kv-cache.ts";
import { isScoring, type Sequence } from "../kv-cache/sequence.ts";

/** Tokens of scored prompts in a step: each has a row of logits, as large as the vocabulary. */
export const MAX_SCORED_TOKENS = 64;

/** The oldest prompt's part of the budget, so that a stream of short ones cannot starve it. */
const OLDEST_SHARE = 0.25;

/**
 * Divides a budget of prompt tokens: the oldest prompt gets its part, the rest goes by rank, and
 * then to the shortest ones.
 * Shortest first gives the smallest mean time to the first token. Sets `planned` on each; returns
 * the tokens planned, which may exceed the budget by a piece for each deterministic prompt.
 */
export function planPrefill(prompts: readonly Sequence[], budget: number): number {
  for (const prompt of prompts) prompt.planned = 0;
  if (prompts.length === 0 || budget <= 0) return 0;
  const oldest = prompts.reduce((a, b) => (b.admitted < a.admitted ? b : a));
  const scored = { left: MAX_SCORED_TOKENS };
  let left = budget - grant(oldest, Math.ceil(budget * OLDEST_SHARE), scored);
  const shortestFirst = prompts.toSorted(
    (a, b) => b.rank - a.rank || remaining(a) - remaining(b) || a.admitted - b.admitted,
  );
  for (const prompt of shortestFirst) {
    if (left <= 0) break;
    left -= grant(prompt, left, scored);
  }
  return budget - left;
}

function remaining(sequence: Sequence): number {
  return sequence.tokens.length - sequence.computed;
}

function grant(sequence: Sequence, tokens: number, scored: { left: number }): number {
  if (sequence.isDeterministic) return grantPiece(sequence);
  const isScored = isScoring(sequence);
  const most = isScored ? Math.min(tokens, scored.left) : tokens;
  const granted = Math.min(most, remaining(sequence) - sequence.planned);
  if (isScored) scored.left -= granted;
  sequence.planned += granted;
  return granted;
}

/**
 * The next piece of a deterministic sequence, whatever the budget: whole pieces of the prompt, then
 * its rest. What was sampled before a preemption follows one by one, as it was computed before.
 */
function grantPiece(sequence: Sequence): number {
  if (sequence.planned > 0) return 0;
  const { computed, promptLength } = sequence;
  const size = isScoring(sequence) ? MAX_SCORED_TOKENS : PIECE_TOKENS;
  const rest = promptLength - computed;
  sequence.planned = rest > 0 ? Math.min(size, rest) : 1;
  return sequence.planned;
}

/** Counts the planned tokens as exact where they are the piece that follows the exact ones. */
export function countExact(sequence: Sequence): void {
  const { planned, exact, computed } = sequence;
  if (sequence.isDeterministic && !isScoring(sequence) && exact === computed) {
    sequence.exact = wholePieces(computed + planned);
  }
}
