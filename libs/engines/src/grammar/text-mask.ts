import type { Dfa } from "./program.ts";
import type { TokenTrie } from "./token-trie.ts";

/** The tokens that fit within one automaton from a state on, whatever comes behind it in a grammar. */
export interface TextMask {
  /** A bit for each token; undefined where `tokens` has them. */
  readonly mask: Uint32Array | undefined;
  readonly tokens: Int32Array;
  /** Nodes of the trie at which the text may be over, while some token continues. */
  readonly exits: Int32Array;
}

/** Up to this many tokens are kept as a list. */
const MAX_LISTED = 256;
const NOWHERE = -1;

/** Where each byte goes from the states of automata; rows are made when they are first needed. */
export class ByteTables {
  readonly #rows = new Map<Dfa, (Int32Array | undefined)[]>();
  /** Memory of the rows. */
  bytes = 0;

  row(dfa: Dfa, state: number): Int32Array {
    let rows = this.#rows.get(dfa);
    if (rows === undefined) {
      rows = new Array<Int32Array | undefined>(dfa.accepts.length).fill(undefined);
      this.#rows.set(dfa, rows);
    }
    const known = rows[state];
    if (known !== undefined) return known;
    const row = new Int32Array(256).fill(NOWHERE);
    const end = dfa.starts[state + 1] as number;
    for (let edge = dfa.starts[state] as number; edge < end; edge++) {
      row.fill(
        dfa.targets[edge] as number,
        dfa.lows[edge] as number,
        (dfa.highs[edge] as number) + 1,
      );
    }
    rows[state] = row;
    this.bytes += row.byteLength;
    return row;
  }
}

/** Follows all tokens of the trie through the automaton alone. */
export function textMaskOf(
  { dfa, state }: { readonly dfa: Dfa; readonly state: number },
  trie: TokenTrie,
  words: number,
  tables: ByteTables,
): TextMask {
  const { bytes, ends, depths, firsts, tokens } = trie;
  const path: Int32Array[] = [tables.row(dfa, state)];
  const fitting: number[] = [];
  const exits: number[] = [];
  for (let node = 0; node < bytes.length; ) {
    const depth = depths[node] as number;
    const to = (path[depth] as Int32Array)[bytes[node] as number] as number;
    if (to === NOWHERE) {
      node = ends[node] as number;
      continue;
    }
    const end = firsts[node + 1] as number;
    for (let at = firsts[node] as number; at < end; at++) fitting.push(tokens[at] as number);
    if ((ends[node] as number) > node + 1) {
      path[depth + 1] = tables.row(dfa, to);
      if (dfa.accepts[to]) exits.push(node);
    }
    node++;
  }
  const isListed = fitting.length <= MAX_LISTED;
  return {
    mask: isListed ? undefined : maskWith(fitting, words),
    tokens: Int32Array.from(isListed ? fitting : []),
    exits: Int32Array.from(exits),
  };
}

/** Adds the tokens to a mask; false where there are none. */
export function addTokens(mask: Uint32Array, { mask: more, tokens }: TextMask): boolean {
  if (more === undefined) {
    for (const token of tokens) setToken(mask, token);
    return tokens.length > 0;
  }
  for (let word = 0; word < mask.length; word++) {
    mask[word] = (mask[word] as number) | (more[word] as number);
  }
  return true;
}

export function setToken(mask: Uint32Array, token: number): void {
  mask[token >>> 5] = (mask[token >>> 5] as number) | (1 << (token & 31));
}

function maskWith(tokens: readonly number[], words: number): Uint32Array {
  const mask = new Uint32Array(words);
  for (const token of tokens) setToken(mask, token);
  return mask;
}
