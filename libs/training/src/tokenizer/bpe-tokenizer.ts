import { type BpeVocabulary, pairKey } from "./bpe-vocabulary.ts";
import { PairHeap } from "./pair-heap.ts";
import { eachWord } from "./pre-tokenizer.ts";
import { WordTable } from "./word-table.ts";

/** The bounds of the cache of words and their tokens; it is emptied when it is full. */
const MAX_CACHED_WORDS = 2 ** 17;
const MAX_CACHED_BYTES = 4 * 2 ** 20;
const MAX_CACHED_WORD_BYTES = 64;

/**
 * Text to tokens and back by byte-pair encoding, as llama.cpp does it for a `gpt2` vocabulary with
 * the pre-tokenizer `gpt-2`. Any bytes can be encoded and decoded without loss.
 */
export class BpeTokenizer {
  readonly vocabulary: BpeVocabulary;
  /** The merge of each pair of tokens. */
  readonly #ranks: ReadonlyMap<number, number>;
  #known = new WordTable();
  /** Tokens of the cached words, one after the other, and the end of each word's. */
  #knownTokens = new TokenList();
  #knownEnds: number[] = [];

  constructor(vocabulary: BpeVocabulary) {
    this.vocabulary = vocabulary;
    const ranks = vocabulary.merges.map(
      ({ left, right }, rank) => [pairKey(left, right), rank] as const,
    );
    // Of a repeated pair the first counts.
    this.#ranks = new Map(ranks.toReversed());
  }

  encode(text: Uint8Array): Int32Array {
    const tokens = new TokenList();
    eachWord(text, (begin, end) => {
      if (end - begin > MAX_CACHED_WORD_BYTES) tokens.append(this.#merged(text, begin, end));
      else tokens.append(this.#tokensOf(text, begin, end));
    });
    return tokens.take();
  }

  /** Special tokens without text decode to nothing. */
  decode(tokens: Iterable<number>): Uint8Array {
    const bytes: number[] = [];
    for (const token of tokens) {
      for (const byte of this.vocabulary.pieces[token] ?? []) bytes.push(byte);
    }
    return Uint8Array.from(bytes);
  }

  #tokensOf(text: Uint8Array, begin: number, end: number): Int32Array {
    const word = this.#known.add(text, begin, end);
    if (word === this.#knownEnds.length) {
      this.#knownTokens.append(this.#merged(text, begin, end));
      this.#knownEnds.push(this.#knownTokens.length);
    }
    const tokens = this.#knownTokens.view(this.#knownEnds[word - 1] ?? 0, this.#knownEnds[word]);
    if (word >= MAX_CACHED_WORDS || this.#known.byteLength > MAX_CACHED_BYTES) this.#forget();
    return tokens;
  }

  #forget(): void {
    this.#known = new WordTable();
    this.#knownTokens = new TokenList();
    this.#knownEnds = [];
  }

  /** Merges pairs in the order of the merges, and the leftmost of equal pairs first. */
  #merged(text: Uint8Array, begin: number, end: number): Int32Array {
    const { byteTokens, merges } = this.vocabulary;
    const chain = new Int32Array(end - begin);
    for (let i = begin; i < end; i++) chain[i - begin] = byteTokens[text[i] ?? 0] ?? 0;
    const before = Int32Array.from(chain, (_, i) => i - 1);
    const after = Int32Array.from(chain, (_, i) => (i + 1 < chain.length ? i + 1 : -1));
    const heap = new PairHeap();
    const offer = (place: number) => {
      const next = after[place] ?? -1;
      if (next < 0) return;
      const rank = this.#ranks.get(pairKey(chain[place] ?? 0, chain[next] ?? 0));
      if (rank !== undefined) heap.push(rank, place);
    };
    for (const place of chain.keys()) offer(place);
    for (let top = heap.pop(); top; top = heap.pop()) {
      const { first: rank, second: place } = top;
      const merge = merges[rank];
      const next = after[place] ?? -1;
      // An entry of the heap may be outdated by a later merge.
      if (!merge || chain[place] !== merge.left || chain[next] !== merge.right) continue;
      chain[place] = merge.result;
      chain[next] = GONE;
      const following = after[next] ?? -1;
      after[place] = following;
      if (following >= 0) before[following] = place;
      offer(place);
      const previous = before[place] ?? -1;
      if (previous >= 0) offer(previous);
    }
    return chain.filter((token) => token !== GONE);
  }
}

/** Marks a place whose token was merged into the one before. */
const GONE = -1;

/** A growing list of tokens. */
class TokenList {
  #tokens = new Int32Array(1024);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  append(tokens: Int32Array): void {
    const needed = this.#length + tokens.length;
    if (needed > this.#tokens.length) {
      const longer = new Int32Array(Math.max(needed, Math.ceil(this.#tokens.length * 1.5)));
      longer.set(this.#tokens.subarray(0, this.#length));
      this.#tokens = longer;
    }
    this.#tokens.set(tokens, this.#length);
    this.#length = needed;
  }

  view(begin: number, end: number | undefined): Int32Array {
    return this.#tokens.subarray(begin, end);
  }

  take(): Int32Array {
    return this.#tokens.slice(0, this.#length);
  }
}
