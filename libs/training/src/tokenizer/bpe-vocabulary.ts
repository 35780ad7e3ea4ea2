/** Two tokens that are merged into one. */
export interface Merge {
  readonly left: number;
  readonly right: number;
  readonly result: number;
}

/** The tokens of byte-pair encoding over bytes: each byte is one, and merges make longer ones. */
export interface BpeVocabulary {
  /** The bytes of each token; undefined for a special token, as the end of a text. */
  readonly pieces: readonly (Uint8Array | undefined)[];
  /** The token of each of the 256 bytes. */
  readonly byteTokens: Int32Array;
  /** In order of precedence. */
  readonly merges: readonly Merge[];
}

/** The greatest size of a vocabulary: two tokens fit in one key. */
export const MAX_TOKENS = 2 ** 20;

/** One number for two tokens. */
export function pairKey(left: number, right: number): number {
  return left * MAX_TOKENS + right;
}

/** The two tokens of a key. */
export function pairOf(key: number): { readonly left: number; readonly right: number } {
  const left = Math.floor(key / MAX_TOKENS);
  return { left, right: key - left * MAX_TOKENS };
}

/**
 * The bytes in ascending order from token `first` on, then the results of the merges, in their
 * order.
 */
export function vocabularyOf(
  pairs: readonly { readonly left: number; readonly right: number }[],
  first: number,
): BpeVocabulary {
  const byteTokens = Int32Array.from({ length: 256 }, (_, byte) => first + byte);
  const pieces: (Uint8Array | undefined)[] = new Array<undefined>(first).fill(undefined);
  for (let byte = 0; byte < 256; byte++) pieces.push(Uint8Array.of(byte));
  const merges = pairs.map(({ left, right }) => {
    const merge = { left: first + left, right: first + right, result: pieces.length };
    const [start = [], rest = []] = [pieces[merge.left], pieces[merge.right]];
    pieces.push(Uint8Array.of(...start, ...rest));
    return merge;
  });
  return { pieces, byteTokens, merges };
}
