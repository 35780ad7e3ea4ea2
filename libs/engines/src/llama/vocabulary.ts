import type { Llama } from "./bindings.ts";
import type { Pointer } from "./layouts.ts";
import { isBlank } from "./prompt-bound.ts";
import { ENDS_GENERATION, IS_CONTROL, IS_PARSED, type VocabularyTable } from "./thread-messages.ts";

/** LLAMA_TOKEN_ATTR_UNKNOWN and _CONTROL: the library reads these from text where it is told to. */
const PARSED_ATTRIBUTES = 1 | 8;

/** LLAMA_TOKEN_ATTR_LSTRIP and _RSTRIP: the token swallows the white space beside it. */
const STRIPPING_ATTRIBUTES = 128 | 256;

/** In llama_vocab_type: by pieces with their scores, by pairs of bytes, and by the longest match. */
const SENTENCE_PIECE = 1;
const BYTE_PAIRS = 2;
const RWKV = 5;

/** No token's text is longer; a longer one would be refused by the library's own tables. */
const MAX_TOKEN_BYTES = 1 << 16;

/** Reads every token's bytes and flags once, so that no native call is made per token later. */
export function readVocabulary(llama: Llama, vocabulary: Pointer): VocabularyTable {
  const size = llama.vocab_n_tokens(vocabulary);
  const offsets = new Uint32Array(new SharedArrayBuffer((size + 1) * 4));
  const flags = new Uint8Array(new SharedArrayBuffer(size));
  const piece = new Uint8Array(MAX_TOKEN_BYTES);
  let collected = new Uint8Array(size * 8);
  let used = 0;
  let isStripping = false;
  for (let token = 0; token < size; token++) {
    const length = Math.max(
      0,
      llama.token_to_piece(vocabulary, token, piece, piece.length, 0, true),
    );
    if (used + length > collected.length) {
      const larger = new Uint8Array((used + length) * 2);
      larger.set(collected);
      collected = larger;
    }
    collected.set(piece.subarray(0, length), used);
    used += length;
    offsets[token + 1] = used;
    const attributes = llama.vocab_get_attr(vocabulary, token);
    isStripping ||= (attributes & STRIPPING_ATTRIBUTES) !== 0;
    flags[token] =
      (llama.vocab_is_eog(vocabulary, token) ? ENDS_GENERATION : 0) |
      (llama.vocab_is_control(vocabulary, token) ? IS_CONTROL : 0) |
      (attributes & PARSED_ATTRIBUTES ? IS_PARSED : 0);
  }
  const bytes = new Uint8Array(new SharedArrayBuffer(used));
  bytes.set(collected.subarray(0, used));
  const type = llama.vocab_type(vocabulary);
  const textOf = (token: number): string =>
    token < 0 ? "" : Buffer.from(bytes.slice(offsets[token], offsets[token + 1])).toString("utf8");
  return {
    bytes,
    offsets,
    flags,
    kept: keptBytes(type, { bytes, offsets }, isStripping),
    isCut: type === BYTE_PAIRS && !joinsWords({ bytes, offsets, flags }),
    bos: textOf(llama.vocab_bos(vocabulary)),
    eos: textOf(llama.vocab_eos(vocabulary)),
    address: vocabulary ?? 0n,
  };
}

/**
 * The library drops a byte that no token of byte pairs spells; of the other kinds of vocabulary two
 * replace what they do not know by a token or more for each byte, and the rest keep nothing for certain.
 */
function keptBytes(
  type: number,
  { bytes, offsets }: Pick<VocabularyTable, "bytes" | "offsets">,
  isStripping: boolean,
): Uint8Array {
  const kept = new Uint8Array(256);
  if (type === SENTENCE_PIECE || type === RWKV) kept.fill(1);
  for (let token = 0; type === BYTE_PAIRS && token + 1 < offsets.length; token++) {
    const at = offsets[token] as number;
    if ((offsets[token + 1] as number) - at === 1) kept[bytes[at] as number] = 1;
  }
  return kept.map((isKept, byte) => (isStripping && isBlank(byte) ? 0 : isKept));
}

/** Whether a token goes on after a word and a space: then words are not tokenized by themselves. */
function joinsWords({
  bytes,
  offsets,
  flags,
}: Pick<VocabularyTable, "bytes" | "offsets" | "flags">): boolean {
  for (let token = 0; token + 1 < offsets.length; token++) {
    if ((flags[token] as number) & (IS_CONTROL | IS_PARSED)) continue;
    for (let at = (offsets[token] as number) + 1; at < (offsets[token + 1] as number); at++) {
      if (bytes[at] === 0x20 && !isBlank(bytes[at - 1] as number)) return true;
    }
  }
  return false;
}

/** The tokens that messages must not write, as they are written. */
export function parsedTokens({ bytes, offsets, flags }: VocabularyTable): [string, number][] {
  const found: [string, number][] = [];
  flags.forEach((flag, token) => {
    if (!(flag & IS_PARSED)) return;
    const text = Buffer.from(bytes.slice(offsets[token], offsets[token + 1])).toString("utf8");
    found.push([text, token]);
  });
  return found;
}
