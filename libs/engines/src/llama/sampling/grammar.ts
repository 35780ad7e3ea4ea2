import {
  commonPart,
  depthOf,
  type GrammarFrame,
  isWithin,
  type MatchState,
} from "../../grammar/match-state.ts";
import type { GrammarMatcher } from "../../grammar/matcher.ts";
import type { TokenTrie } from "../../grammar/token-trie.ts";
import { ENDS_GENERATION } from "../protocol/thread-messages.ts";
import { isSilent } from "../tokenizing/vocabulary.ts";
import { MAX_REPEATED, type Repetition, RepetitionWatch } from "./repetition-watch.ts";

/** What grammars need to know of the model's tokens. */
export interface GrammarTokens {
  readonly vocabularySize: number;
  /** See VocabularyTable.flags. */
  readonly flags: Uint8Array;
  /** A token as grammars read it. */
  readonly tokenBytes: (token: number) => Uint8Array;
  readonly trie: TokenTrie;
}

/** Equal elements of a list without bounds that may be wanted, and the tokens of as many short ones. */
const WANTED_REPEATS = 64;
const WANTED_TOKENS = 256;

/** No token fits the grammar, and the text may end there. */
export const COMPLETE = -1;
/** No token fits the grammar, and the text is not complete: the vocabulary cannot spell it. */
export const STUCK = -2;

/**
 * The grammar that the text of one choice must match. The drawn token is checked first; only where it
 * is refused are all tokens that do not fit taken out and another is drawn. The part of a text that is
 * repeated without end is left by the shortest way, as no greedy model leaves it. A token after which
 * the text could not end within its limit is replaced by the first of a short end.
 */
export class Grammar {
  readonly #matcher: GrammarMatcher;
  readonly #tokens: GrammarTokens;
  readonly #watch = new RepetitionWatch();
  /** The states after the latest tokens. */
  readonly #latest: MatchState[] = [];
  #state: MatchState;
  #isCut = false;
  /** False once no end is near enough for the limit: the text is cut anywhere. */
  #canEnd = true;
  #isLeaving = false;
  /** The part of the text that is to be left; undefined for the whole. */
  #left: GrammarFrame | undefined;

  constructor(matcher: GrammarMatcher, tokens: GrammarTokens) {
    this.#matcher = matcher;
    this.#tokens = tokens;
    this.#state = matcher.start();
  }

  /** Whether a token was replaced because the text may not be longer. */
  get isCut(): boolean {
    return this.#isCut;
  }

  /** One of the tokens that were accepted was such a replacement. */
  cut(): void {
    this.#isCut = true;
  }

  /**
   * Draws a token that fits, else COMPLETE or STUCK; `logits` may lose those that do not fit. With it the
   * text may have `left` more tokens.
   */
  draw(logits: Float32Array, left: number, draw: (logits: Float32Array) => number): number {
    const token = this.#drawFitting(logits, draw);
    const after = token < 0 ? null : this.#after(token);
    if (after === null || !this.#canEnd || this.#endsWithin(after, left - 1)) return token;
    this.#canEnd = this.#endsWithin(this.#state, left);
    if (!this.#canEnd) return token;
    const { isComplete } = this.#state;
    const first = this.#matcher.firstOfEnd(this.#state, this.#tokens.trie);
    if (first === undefined && !isComplete) return token;
    this.#isCut = true;
    return first ?? COMPLETE;
  }

  #endsWithin(state: MatchState, tokens: number): boolean {
    return this.#matcher.endsWithin(state, tokens, this.#tokens.trie);
  }

  #drawFitting(logits: Float32Array, draw: (logits: Float32Array) => number): number {
    if (this.#isLeaving && this.#restrict(logits)) return draw(logits);
    const first = draw(logits);
    if (logits[first] !== Number.NEGATIVE_INFINITY && this.allows(first)) return first;
    this.#mask(logits);
    const token = draw(logits);
    if (logits[token] !== Number.NEGATIVE_INFINITY) return token;
    return this.#state.isComplete ? COMPLETE : STUCK;
  }

  /** Moves on past a token that is part of the text; never one that ends the generation. */
  accept(token: number): void {
    const after = this.#after(token);
    if (after === null) throw new Error(`token ${token} does not fit the grammar`);
    this.#state = after;
    this.#latest.push(after);
    if (this.#latest.length > MAX_REPEATED) this.#latest.shift();
    const found = this.#watch.push(token);
    if (found && !this.#isLeaving && this.#isEndless(found)) {
      this.#leave(this.#latest.slice(-found.tokens));
    }
    if (this.#isLeaving && this.#isLeft) {
      this.#isLeaving = false;
      this.#watch.clear();
    }
  }

  get #isLeft(): boolean {
    return (
      this.#state.isComplete || (this.#left !== undefined && !isWithin(this.#state, this.#left))
    );
  }

  /** Whether a repetition may exceed what is wanted, and does not end by itself. */
  #isEndless({ period, tokens }: Repetition): boolean {
    const before = this.#latest.at(-1 - period);
    if (before === undefined) return false;
    const isDeeper = depthOf(this.#state) > depthOf(before);
    if (isDeeper || !this.#matcher.areElements(this.#latest.slice(-period))) return true;
    // Elements are counted up to their `minItems` or `maxItems`.
    const isCounted = this.#state !== before;
    const wanted = Math.max(WANTED_TOKENS, Math.min(WANTED_REPEATS * period, MAX_REPEATED));
    return !isCounted && tokens >= wanted;
  }

  /** Where the text might end at any time it is free text, which may be anything. */
  #leave(repeated: readonly MatchState[]): void {
    this.#isLeaving = !repeated.some(({ isComplete }) => isComplete);
    this.#left = commonPart(repeated);
  }

  /** Leaves the tokens that bring the end nearer; false where none does. */
  #restrict(logits: Float32Array): boolean {
    const tokens = this.#matcher.towardsEnd(this.#state, this.#tokens.trie);
    const values = tokens.map((token) => logits[token] as number);
    if (!values.some((value) => value > Number.NEGATIVE_INFINITY)) return false;
    logits.fill(Number.NEGATIVE_INFINITY);
    tokens.forEach((token, at) => {
      logits[token] = values[at] as number;
    });
    return true;
  }

  /** Whether the token may be next. */
  allows(token: number): boolean {
    const flags = this.#tokens.flags[token] as number;
    if (flags & ENDS_GENERATION) return this.#state.isComplete;
    return this.#after(token) !== null;
  }

  /** The state behind a token of text that fits. */
  #after(token: number): MatchState | null {
    const flags = this.#tokens.flags[token] as number;
    const bytes = this.#tokens.tokenBytes(token);
    if (flags & ENDS_GENERATION || isSilent(flags) || bytes.length === 0) return null;
    return this.#matcher.steps(this.#state, bytes);
  }

  #mask(logits: Float32Array): void {
    const { flags, trie, vocabularySize } = this.#tokens;
    const mask = this.#matcher.maskOf(this.#state, trie, vocabularySize);
    const { isComplete } = this.#state;
    for (let word = 0; word < mask.length; word++) {
      const bits = mask[word] as number;
      if (bits === 0xffffffff) continue;
      const end = Math.min((word + 1) << 5, logits.length);
      for (let token = word << 5; token < end; token++) {
        if (bits & (1 << (token & 31))) continue;
        if (isComplete && (flags[token] as number) & ENDS_GENERATION) continue;
        logits[token] = Number.NEGATIVE_INFINITY;
      }
    }
  }
}
