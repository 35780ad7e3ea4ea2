import type { Llama } from "./bindings.ts";
import type { Pointer } from "./layouts.ts";
import { ENDS_GENERATION, IS_CONTROL, IS_PARSED, type VocabularyTable } from "./thread-messages.ts";

/** LLAMA_TOKEN_ATTR_UNKNOWN and _CONTROL: the library reads these from text where it is told to. */
const PARSED_ATTRIBUTES = 1 | 8;

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
    flags[token] =
      (llama.vocab_is_eog(vocabulary, token) ? ENDS_GENERATION : 0) |
      (llama.vocab_is_control(vocabulary, token) ? IS_CONTROL : 0) |
      (llama.vocab_get_attr(vocabulary, token) & PARSED_ATTRIBUTES ? IS_PARSED : 0);
  }
  const bytes = new Uint8Array(new SharedArrayBuffer(used));
  bytes.set(collected.subarray(0, used));
  const textOf = (token: number): string =>
    token < 0 ? "" : Buffer.from(bytes.slice(offsets[token], offsets[token + 1])).toString("utf8");
  return {
    bytes,
    offsets,
    flags,
    bos: textOf(llama.vocab_bos(vocabulary)),
    eos: textOf(llama.vocab_eos(vocabulary)),
    address: vocabulary ?? 0n,
  };
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
