/**
 * Cuts a text into the words of GPT-2's pattern, which llama.cpp has as `gpt-2`; tokens never cross
 * their edges:
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * Works on bytes, so that any data can be read: a byte that is no UTF-8 is one of `[^\s\p{L}\p{N}]`.
 */
export function eachWord(text: Uint8Array, visit: (begin: number, end: number) => void): void {
  for (let at = 0; at < text.length; ) {
    const end = wordEnd(text, at);
    visit(at, end);
    at = end;
  }
}

/** The character classes of the pattern; `NOTHING` is the text's end. */
const [OTHER, LETTER, NUMBER, WHITE, NOTHING] = [0, 1, 2, 3, 4] as const;
/** A result has the class in its low bits and the code point's number of bytes above. */
const KIND_BITS = 3;
const KIND_MASK = 7;
const [SPACE, APOSTROPHE] = [0x20, 0x27];

function wordEnd(text: Uint8Array, at: number): number {
  if (text[at] === APOSTROPHE) {
    const length = contraction(text, at);
    if (length > 0) return at + length;
  }
  const from = text[at] === SPACE ? at + 1 : at;
  const kind = classAt(text, from) & KIND_MASK;
  return kind < WHITE ? runEnd(text, from, kind) : whiteEnd(text, at);
}

/** The length in bytes of an English contraction with its apostrophe; 0 for none. */
function contraction(text: Uint8Array, at: number): number {
  const [first = 0, second = 0] = text.subarray(at + 1, at + 3);
  if ("stmd".includes(String.fromCharCode(first))) return 2;
  return ["re", "ve", "ll"].includes(String.fromCharCode(first, second)) ? 3 : 0;
}

function runEnd(text: Uint8Array, from: number, kind: number): number {
  let end = from;
  for (let next = classAt(text, end); (next & KIND_MASK) === kind; next = classAt(text, end)) {
    end += next >> KIND_BITS;
  }
  return end;
}

/** A run of white space leaves its last character to the following word, where it has others. */
function whiteEnd(text: Uint8Array, at: number): number {
  let [end, last] = [at, at];
  for (let next = classAt(text, end); (next & KIND_MASK) === WHITE; next = classAt(text, end)) {
    last = end;
    end += next >> KIND_BITS;
  }
  return end < text.length && last > at ? last : end;
}

function classAt(text: Uint8Array, at: number): number {
  const byte = text[at];
  if (byte === undefined) return NOTHING;
  if (byte < 0x80) return kindOf(byte) | (1 << KIND_BITS);
  const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
  const point = byte < 0xc2 || byte > 0xf4 ? -1 : codePoint(text, at, length);
  return point < 0 ? OTHER | (1 << KIND_BITS) : kindOf(point) | (length << KIND_BITS);
}

/** -1 for invalid UTF-8: truncated, overlong, a surrogate, or above U+10FFFF. */
function codePoint(text: Uint8Array, at: number, length: number): number {
  let point = (text[at] ?? 0) & (0x7f >> length);
  for (let i = 1; i < length; i++) {
    const byte = text[at + i] ?? 0;
    if ((byte & 0xc0) !== 0x80) return -1;
    point = (point << 6) | (byte & 0x3f);
  }
  const least = length === 2 ? 0x80 : length === 3 ? 0x800 : 0x10000;
  const isSurrogate = point >= 0xd800 && point <= 0xdfff;
  return point < least || isSurrogate || point > 0x10ffff ? -1 : point;
}

/** Classes by code point plus one; 0 where unknown yet. */
const known = new Uint8Array(0x110000);

function kindOf(point: number): number {
  const found = known[point] ?? 0;
  if (found > 0) return found - 1;
  const kind = classify(String.fromCodePoint(point));
  known[point] = kind + 1;
  return kind;
}

function classify(character: string): number {
  if (/\p{L}/u.test(character)) return LETTER;
  if (/\p{N}/u.test(character)) return NUMBER;
  return /\p{White_Space}/u.test(character) ? WHITE : OTHER;
}
