/**
 * The longest text that the library is given at once. Its regular expressions call themselves for every
 * character of a run of one kind: 26,000 letters A in a row have ended processes with 8 MiB of stack.
 */
export const MAX_PIECE_CHARS = 8 * 1024;

const SPACE = 0x20;
const WORD = /[\p{L}\p{N}]/u;
const LETTER = /\p{L}/u;
/** What no pattern joins to the letter before it: apostrophes are a part of "it's" in some. */
const SYMBOL = /[^\s\p{L}\p{N}\p{M}\p{Cs}'’]/u;

/**
 * The text in pieces of at most MAX_PIECE_CHARS. They are cut before a space that follows a word, where
 * vocabularies of byte pairs begin a new word, so that the tokens stay the same; in a text that has none
 * for thousands of characters before a symbol that follows a letter, else between any two characters.
 */
export function* textPieces(text: string): Generator<string, void> {
  let from = 0;
  while (text.length - from > MAX_PIECE_CHARS) {
    const to = cutAfter(text, from);
    yield text.slice(from, to);
    from = to;
  }
  yield text.slice(from);
}

/** The last good place for a cut in the second half of the piece that begins at `from`. */
function cutAfter(text: string, from: number): number {
  const end = from + MAX_PIECE_CHARS;
  const middle = from + MAX_PIECE_CHARS / 2;
  for (let at = end; at > middle; at--) {
    if (text.charCodeAt(at) === SPACE && WORD.test(text.charAt(at - 1))) return at;
  }
  for (let at = end; at > middle; at--) {
    if (SYMBOL.test(text.charAt(at)) && LETTER.test(text.charAt(at - 1))) return at;
  }
  const isWithinPair = (text.codePointAt(end - 1) ?? 0) > 0xffff;
  return isWithinPair ? end - 1 : end;
}
