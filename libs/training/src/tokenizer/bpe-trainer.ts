import { MAX_TOKENS, pairKey, pairOf } from "./bpe-vocabulary.ts";
import { PairHeap } from "./pair-heap.ts";
import { eachWord } from "./pre-tokenizer.ts";
import { WordTable } from "./word-table.ts";

/** Two symbols that become one: bytes are 0 to 255, and the n-th pair of a training is 256 + n. */
export interface SymbolPair {
  readonly left: number;
  readonly right: number;
}

/**
 * Finds the pairs to merge (Gage, 1994; Sennrich et al., 2016), over bytes and within words. Each
 * time it takes the most frequent pair; of equals the one whose left, then right symbol is older. A
 * pair that spells an existing token is skipped. Returns at most `limit` pairs, fewer where no pair
 * occurs twice; the same text gives the same pairs.
 *
 * Memory is bounded: words longer than `MAX_WORD_BYTES` are skipped, and the rarest words are
 * dropped when there are too many.
 */
export function trainBpe(text: Uint8Array, limit: number): SymbolPair[] {
  const corpus = new SymbolCorpus(countWords(text));
  const pieces = Array.from({ length: FIRST_PAIR }, (_, byte) => String.fromCharCode(byte));
  const made = new Set<string>();
  const pairs: SymbolPair[] = [];
  const most = Math.min(limit, MAX_TOKENS - FIRST_PAIR);
  while (pairs.length < most) {
    const pair = corpus.takeMostFrequent();
    if (!pair) break;
    const piece = `${pieces[pair.left]}${pieces[pair.right]}`;
    if (made.has(piece)) continue;
    corpus.merge(pair, FIRST_PAIR + pairs.length);
    pairs.push(pair);
    pieces.push(piece);
    made.add(piece);
  }
  return pairs;
}

const FIRST_PAIR = 256;
/** A less frequent pair gets no token. */
const MIN_COUNT = 2;
const MAX_WORD_BYTES = 256;
const MAX_WORDS = 2 ** 18;
/** The most bytes of all counted words; training uses about 40 times as much. */
const MAX_TABLE_BYTES = 4 * 2 ** 20;

/** Different words, each with its count. */
interface WordCounts {
  readonly words: WordTable;
  readonly counts: readonly number[];
}

function countWords(text: Uint8Array): WordCounts {
  let words = new WordTable();
  let counts: number[] = [];
  eachWord(text, (begin, end) => {
    // A word of one byte has no pair.
    if (end - begin > MAX_WORD_BYTES || end - begin < 2) return;
    const word = words.add(text, begin, end);
    counts[word] = (counts[word] ?? 0) + 1;
    if (isFull(words, 1)) ({ words, counts } = withoutRare({ words, counts }));
  });
  return { words, counts };
}

function isFull({ size, byteLength }: WordTable, share: number): boolean {
  return size > MAX_WORDS * share || byteLength > MAX_TABLE_BYTES * share;
}

/** Drops the rarest words until half of the table is free. */
function withoutRare({ words, counts }: WordCounts): { words: WordTable; counts: number[] } {
  for (let least = 2; ; least *= 2) {
    const kept = { words: new WordTable(), counts: [] as number[] };
    for (const [word, count] of counts.entries()) {
      if (count < least) continue;
      const bytes = words.bytesOf(word);
      kept.words.add(bytes, 0, bytes.length);
      kept.counts.push(count);
    }
    if (!isFull(kept.words, 0.5)) return kept;
  }
}

/** Places where a pair was formed, ascending; some may have been merged away since. */
interface PairPlaces {
  count: number;
  readonly places: number[];
}

/** The words as chains of symbols, with the counts of their pairs. */
class SymbolCorpus {
  /** -1 at a place whose symbol was merged into the one before. */
  readonly #symbols: Int32Array;
  /** Places of the neighbours within the word; -1 where there is none. */
  readonly #before: Int32Array;
  readonly #after: Int32Array;
  /** The count of the word of a place. */
  readonly #counts: Int32Array;
  readonly #pairs = new Map<number, PairPlaces>();
  /**
   * By descending count. Counts only fall after a pair was pushed; an outdated count is corrected
   * when the pair is popped.
   */
  readonly #heap = new PairHeap();

  constructor({ words, counts }: WordCounts) {
    const { byteLength } = words;
    this.#symbols = new Int32Array(byteLength);
    this.#before = new Int32Array(byteLength);
    this.#after = new Int32Array(byteLength);
    this.#counts = new Int32Array(byteLength);
    let at = 0;
    for (const [word, count] of counts.entries()) at = this.#lay(words.bytesOf(word), count, at);
    for (const [key, { count }] of this.#pairs) this.#heap.push(-count, key);
  }

  /** Each pair at most once; undefined where no frequent one is left. */
  takeMostFrequent(): SymbolPair | undefined {
    for (let top = this.#heap.pop(); top; top = this.#heap.pop()) {
      const count = this.#pairs.get(top.second)?.count ?? 0;
      if (count < MIN_COUNT) this.#pairs.delete(top.second);
      else if (count === -top.first) return pairOf(top.second);
      else this.#heap.push(-count, top.second);
    }
    return undefined;
  }

  /** Replaces the pair by one symbol everywhere. */
  merge({ left, right }: SymbolPair, result: number): void {
    const key = pairKey(left, right);
    const made = new Set<number>();
    for (const place of this.#pairs.get(key)?.places ?? []) {
      const next = this.#after[place] ?? -1;
      if (this.#symbols[place] !== left || this.#symbols[next] !== right) continue;
      this.#replace(place, next, result, made);
    }
    this.#pairs.delete(key);
    for (const each of made) this.#heap.push(-(this.#pairs.get(each)?.count ?? 0), each);
  }

  #lay(bytes: Uint8Array, count: number, begin: number): number {
    for (const [i, byte] of bytes.entries()) {
      const place = begin + i;
      const isLast = i + 1 === bytes.length;
      this.#symbols[place] = byte;
      this.#before[place] = i === 0 ? -1 : place - 1;
      this.#after[place] = isLast ? -1 : place + 1;
      this.#counts[place] = count;
      if (!isLast) this.#add(pairKey(byte, bytes[i + 1] ?? 0), place, count);
    }
    return begin + bytes.length;
  }

  #replace(place: number, next: number, result: number, made: Set<number>): void {
    const [before, after] = [this.#before[place] ?? -1, this.#after[next] ?? -1];
    const count = this.#counts[place] ?? 0;
    const [left, right] = [this.#symbols[place] ?? 0, this.#symbols[next] ?? 0];
    if (before >= 0) {
      const symbol = this.#symbols[before] ?? 0;
      this.#drop(pairKey(symbol, left), count);
      made.add(this.#add(pairKey(symbol, result), before, count));
    }
    if (after >= 0) {
      const symbol = this.#symbols[after] ?? 0;
      this.#drop(pairKey(right, symbol), count);
      made.add(this.#add(pairKey(result, symbol), place, count));
      this.#before[after] = place;
    }
    this.#symbols[place] = result;
    this.#symbols[next] = -1;
    this.#after[place] = after;
  }

  #add(key: number, place: number, count: number): number {
    const pair = this.#pairs.get(key);
    if (pair) {
      pair.count += count;
      pair.places.push(place);
    } else {
      this.#pairs.set(key, { count, places: [place] });
    }
    return key;
  }

  #drop(key: number, count: number): void {
    const pair = this.#pairs.get(key);
    if (pair) pair.count -= count;
  }
}
