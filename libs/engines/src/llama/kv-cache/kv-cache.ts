import { isScoring, type Sequence } from "./sequence.ts";

/**
 * Tokens of a piece in which a deterministic sequence's prompt is computed: kernels round
 * differently for other numbers of rows. Pieces begin at its multiples.
 */
export const PIECE_TOKENS = 128;

/** The largest number of whole pieces' tokens that is not above the length. */
export function wholePieces(length: number): number {
  return length - (length % PIECE_TOKENS);
}

/**
 * Owners of the cells of the native KV cache. The batch loop decides what is computed; the cache
 * decides where it lies and what is kept for later requests. Invariants of both layouts:
 * - A sequence runs exactly from `admit` to `release`.
 * - Meanwhile its first `computed` tokens, and no others, are in the cache under the id `slot`.
 * - No id belongs to two sequences.
 */
export interface KvCache {
  /** Cells in all. */
  readonly capacity: number;
  /** The sequences that have a slot, oldest first. */
  readonly running: ReadonlySet<Sequence>;
  readonly hasFreeSlot: boolean;
  /** Sequences that may run at once. */
  readonly slots: number;
  /** False where no sequence can use what another has computed. */
  readonly shares: boolean;
  /** Cells in use, those of kept prefixes too. */
  readonly usedTokens: number;
  /** How many of the sequence's tokens are cached; the last token is always computed again. */
  cachedLength(sequence: Sequence): number;
  /** Gives the sequence a slot and its cached prefix if all of it and `headroom` fit; else false. */
  admit(sequence: Sequence, headroom: number): boolean;
  /** Lets others find the first `length` computed tokens. */
  share(sequence: Sequence, length: number): void;
  /** Takes away cells beyond the sequence's computed tokens. */
  truncate(sequence: Sequence): void;
  /** Takes the slot away; what it computed may be kept. */
  release(sequence: Sequence): void;
  /** May move running sequences to other slots so that these are computed together faster. */
  gather(sequences: readonly Sequence[]): void;
  /** Evicts kept prefixes until `tokens` cells are free or none is left; gives the free cells. */
  makeRoom(tokens: number): number;
  /** Drops every kept prefix that no running sequence needs; gives the tokens freed. */
  evictAll(): number;
}

/** How many of the tokens a cache may serve: those are computed again whose logits are wanted. */
export function shareableLength(sequence: Sequence): number {
  if (sequence.embedding !== undefined) return 0;
  return (isScoring(sequence) ? sequence.scored : sequence.tokens.length) - 1;
}

/** The number of leading tokens that both have, at most `limit`. */
export function commonLength(a: Int32Array, b: Int32Array, limit: number): number {
  let length = 0;
  while (length < limit && a[length] === b[length]) length++;
  return length;
}
