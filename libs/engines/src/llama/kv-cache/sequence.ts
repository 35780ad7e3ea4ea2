import type { ThreadEmbed, ThreadSubmit } from "../protocol/thread-messages.ts";
import type { Grammar } from "../sampling/grammar.ts";
import type { ReasoningLimiter } from "../sampling/reasoning-limiter.ts";
import type { Sampler } from "../sampling/sampler.ts";
import type { Drafter } from "../speculation/drafter.ts";
import type { TokenList } from "./token-list.ts";

/** One choice of one request, from its arrival to its last token, or one input to embed. */
export type Sequence = TextSequence | EmbeddedSequence;

/** A sequence that continues with what is sampled. */
export interface TextSequence extends SequenceState {
  readonly request: ThreadSubmit;
  readonly embedding?: undefined;
  readonly sampler: Sampler;
  readonly grammar: Grammar | undefined;
  readonly reasoning: ReasoningLimiter | undefined;
  /** Tokens sampled so far. */
  sampled: number;
  /**
   * For a prompt that is scored, how many of its tokens are, from the first on; else all of them.
   */
  scored: number;
  /** Absent where its next tokens are not predicted. */
  readonly drafter: Drafter | undefined;
}

/** A sequence that ends with its prompt, and shares nothing: all of its rows are wanted. */
export interface EmbeddedSequence extends SequenceState {
  readonly request: ThreadEmbed;
  /** The sum of the rows so far, where the engine pools them. */
  readonly embedding: Float64Array;
}

interface SequenceState {
  readonly handle: number;
  /** Whether it is the first of its request: its admission starts that. */
  readonly isFirst: boolean;
  readonly fairKey: string;
  readonly priority: number;
  /** Its priority at its admission, with what it had waited: those that outrank it may preempt it. */
  rank: number;
  readonly arrivedMs: number;
  /** Since when it waits for a slot; negative after a preemption, until the next admission. */
  waitingSinceMs: number;
  readonly tokens: TokenList;
  /** How many of the first tokens are computed as a prompt. */
  promptLength: number;
  /** Whether its numbers must not depend on other sequences. */
  readonly isDeterministic: boolean;
  /** The number of its adapter, 0 for none. */
  readonly adapter: number;
  /** Its adapter and its salt: cells are shared only among sequences of one group. */
  readonly group: string;
  /** The KV sequence id while it runs, else -1. */
  slot: number;
  /** Order of admission; the largest is preempted first. */
  admitted: number;
  /** Tokens whose cells are in the cache; when it equals tokens.length the next is sampled. */
  computed: number;
  /**
   * How many of these were computed in whole pieces, from the first on, so that all sequences may
   * reuse them.
   */
  exact: number;
  /** Whether its prompt was offered to others since it got its slot. */
  shared: boolean;
  /** Whether its request was reported as started. */
  started: boolean;
  /** Tokens it has in the batch that is being decoded. */
  planned: number;
  /** Predicted tokens that are computed after these; their cells come after the computed ones. */
  drafted: number;
  /** While waiting: the running sequence whose prefill brings a prefix of this one. */
  blocker: Sequence | undefined;
  /** The length of that prefix. */
  blockedLength: number;
}

/** Whether tokens of its prompt are to be scored, so that the ones before them must be computed. */
export function isScoring(sequence: Sequence): boolean {
  return sequence.embedding === undefined && sequence.scored < sequence.promptLength;
}

/** How many of the batch's rows score tokens of the sequence's prompt. */
export function scoredRows(sequence: TextSequence): number {
  if (!isScoring(sequence)) return 0;
  const { computed, promptLength, scored } = sequence;
  return Math.max(0, Math.min(computed, promptLength - 1) - scored + 1);
}

/** A sequence on its arrival. */
export function waitingState(
  request: ThreadSubmit | ThreadEmbed,
  index: number,
  tokens: TokenList,
  arrivedMs: number,
  { adapter = 0, isFirst = index === 0, promptLength = tokens.length } = {},
) {
  const { firstHandle, fairKey, priority } = request;
  return {
    handle: firstHandle + index,
    isFirst,
    fairKey,
    priority,
    rank: priority,
    arrivedMs,
    waitingSinceMs: arrivedMs,
    tokens,
    promptLength,
    isDeterministic: request.kind === "submit" && request.isDeterministic,
    adapter,
    group: request.kind === "submit" ? `${adapter} ${request.cacheSalt}` : "",
    slot: -1,
    admitted: 0,
    computed: 0,
    exact: 0,
    shared: false,
    started: false,
    planned: 0,
    drafted: 0,
    blocker: undefined,
    blockedLength: 0,
  };
}
