import type { TextCuts } from "../protocol/thread-messages.ts";

/**
 * The longest text that the library is given at once, as its regular expressions recurse for every
 * character of a run of one kind. 26,000 letters A in a row have ended processes with 8 MiB of
 * stack.
 */
const MAX_PIECE_CHARS = 8 * 1024;
/** The same where characters may be unknown: the library copies all tokens so far at each of them. */
const MAX_UNKNOWN_CHARS = 2 * 1024;
/** The most digits of a run in one piece, a multiple of three: the cost grows with their square. */
const MAX_DIGITS = 60;

const SPACE = 0x20;
const WORD = /[\p{L}\p{N}]/u;
const LETTER = /\p{L}/u;
/** What no pattern joins to the letter before it: apostrophes are a part of "it's" in some. */
const SYMBOL = /[^\s\p{L}\p{N}\p{M}\p{Cs}'’]|[\r\n]/u;
const LONG_DIGITS = new RegExp(`[0-9]{${MAX_DIGITS + 1},}`, "g");
/**
 * Numbers of further kinds, which the library does not group: they are cut anywhere, so that none
 * ends the process.
 */
const LONG_NUMBERS = new RegExp(`\\p{N}{${MAX_PIECE_CHARS + 1},}`, "gu");

/** Whether a text is long enough to be given to the library in pieces. */
export function isCut(text: string, cuts: TextCuts): boolean {
  const { atSpaces, atSymbols, known, inDigits } = cuts;
  if ((atSpaces || atSymbols || known) && text.length > maxChars(cuts)) return true;
  return inDigits && (text.search(LONG_DIGITS) >= 0 || text.search(LONG_NUMBERS) >= 0);
}

/** The text in pieces which together have the tokens of the whole, but where it is cut anywhere. */
export function* textPieces(text: string, cuts: TextCuts): Generator<string, void> {
  for (const part of cuts.inDigits ? digitPieces(text) : [text]) yield* placesPieces(part, cuts);
}

/** Pieces that have no long run of digits: it is cut where the library divides it too. */
function* digitPieces(text: string): Generator<string, void> {
  let from = 0;
  for (const { index, 0: run } of text.matchAll(LONG_DIGITS)) {
    const first = index + ((run.length - 1) % MAX_DIGITS) + 1;
    for (let at = first; at < index + run.length; at += MAX_DIGITS) {
      yield* numberPieces(text.slice(from, at));
      from = at;
    }
  }
  yield* numberPieces(text.slice(from));
}

function* numberPieces(text: string): Generator<string, void> {
  let from = 0;
  for (const { index, 0: run } of text.matchAll(LONG_NUMBERS)) {
    for (let end = index + MAX_PIECE_CHARS; end < index + run.length; end += MAX_PIECE_CHARS) {
      const at = isPair(text, end - 1) ? end - 1 : end;
      yield text.slice(from, at);
      from = at;
    }
  }
  yield text.slice(from);
}

function* placesPieces(text: string, cuts: TextCuts): Generator<string, void> {
  let from = 0;
  while (text.length - from > maxChars(cuts)) {
    const to = cutAfter(text, from, cuts);
    if (to === undefined) break;
    yield text.slice(from, to);
    from = to;
  }
  yield text.slice(from);
}

function maxChars({ known }: TextCuts): number {
  return known ? MAX_UNKNOWN_CHARS : MAX_PIECE_CHARS;
}

/**
 * The last good place for a cut in the second half of the piece that begins at `from`: before a space,
 * else before a symbol. Where there is none, anywhere, or the next good place.
 */
function cutAfter(text: string, from: number, cuts: TextCuts): number | undefined {
  const end = from + maxChars(cuts);
  const middle = from + maxChars(cuts) / 2;
  for (let at = end; at > middle; at--) if (isGood(text, at, cuts)) return at;
  if (cuts.atSymbols) {
    for (let at = end; at > middle; at--) {
      if (SYMBOL.test(text.charAt(at)) && LETTER.test(text.charAt(at - 1))) return at;
    }
  }
  if (cuts.anywhere) return isPair(text, end - 1) ? end - 1 : end;
  for (let at = end + 1; at < text.length; at++) if (isGood(text, at, cuts)) return at;
  return undefined;
}

function isGood(text: string, at: number, { atSpaces, known }: TextCuts): boolean {
  if (atSpaces && text.charCodeAt(at) === SPACE && at + 1 < text.length) {
    if (WORD.test(text.charAt(at - 1))) return true;
  }
  if (!known || !isUnknown(text, at, known)) return false;
  const before = isPair(text, at - 2) ? at - 2 : at - 1;
  return isUnknown(text, before, known) || WORD.test(text.slice(before, at));
}

function isUnknown(text: string, at: number, known: Uint8Array): boolean {
  const unit = text.charCodeAt(at);
  const isHalf = unit >= 0xd800 && unit <= 0xdfff;
  if (isHalf && !isPair(text, at)) return false;
  const point = text.codePointAt(at) as number;
  return ((known[point >> 3] as number) & (1 << (point & 7))) === 0;
}

function isPair(text: string, at: number): boolean {
  return (text.codePointAt(at) ?? 0) > 0xffff;
}
