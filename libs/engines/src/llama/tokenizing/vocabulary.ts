import { MARK_BYTE, markedBytes } from "../../grammar/marked-bytes.ts";
import type { Llama } from "../native/bindings.ts";
import type { Pointer } from "../native/layouts.ts";
import {
  ENDS_GENERATION,
  type FillTokens,
  IS_CONTROL,
  IS_MARK,
  IS_PARSED,
  type PairForm,
  type TextCuts,
  type VocabularyTable,
} from "../protocol/thread-messages.ts";
import { isBlank } from "./prompt-bound.ts";

/** LLAMA_TOKEN_ATTR_UNKNOWN and _CONTROL: the library reads these from text only where asked to. */
const PARSED_ATTRIBUTES = 1 | 8;

/** LLAMA_TOKEN_ATTR_LSTRIP and _RSTRIP: the token swallows the white space beside it. */
const STRIPPING_ATTRIBUTES = 128 | 256;

/** LLAMA_TOKEN_ATTR_BYTE: encodes a byte of text that no other token covers. */
const BYTE_ATTRIBUTE = 32;

/** The mark that SentencePiece has for a space. */
const SPACE_MARK = 0x2581;
const NO_BYTES = new Uint8Array(0);
const CODE_POINTS = 0x110000;
const MAX_VALUE_BYTES = 256;

/** In llama_vocab_type: by pieces with their scores, by pairs of bytes, and by the longest match. */
const SENTENCE_PIECE = 1;
const BYTE_PAIRS = 2;
const RWKV = 5;

/** No token's text is longer; a longer one would be refused by the library's own tables. */
const MAX_TOKEN_BYTES = 1 << 16;

/** Reads every token's bytes and flags once, so that no native call is made per token later. */
export function readVocabulary(llama: Llama, model: Pointer): VocabularyTable {
  const vocabulary = llama.model_get_vocab(model);
  const size = llama.vocab_n_tokens(vocabulary);
  const offsets = new Uint32Array(new SharedArrayBuffer((size + 1) * 4));
  const flags = new Uint8Array(new SharedArrayBuffer(size));
  const isByte = new Uint8Array(size);
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
    isByte[token] = attributes & BYTE_ATTRIBUTE ? 1 : 0;
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
    cuts: cutsOf(type, { bytes, offsets, flags, isByte }, (key) => metadataOf(llama, model, key)),
    pair: pairForm(llama, model),
    fill: fillTokens(llama, vocabulary),
    bos: textOf(llama.vocab_bos(vocabulary)),
    eos: textOf(llama.vocab_eos(vocabulary)),
    address: vocabulary ?? 0n,
  };
}

function fillTokens(llama: Llama, vocabulary: Pointer): FillTokens | undefined {
  const prefix = llama.vocab_fim_pre(vocabulary);
  const suffix = llama.vocab_fim_suf(vocabulary);
  const middle = llama.vocab_fim_mid(vocabulary);
  return Math.min(prefix, suffix, middle) < 0 ? undefined : { prefix, suffix, middle };
}

/** As llama-server joins a query and a document. */
function pairForm(llama: Llama, model: Pointer): PairForm {
  const vocabulary = llama.model_get_vocab(model);
  const [bos, eos, sep] = [
    llama.vocab_bos(vocabulary),
    llama.vocab_eos(vocabulary),
    llama.vocab_sep(vocabulary),
  ];
  const end = llama.vocab_get_add_eos(vocabulary) ? [eos < 0 ? sep : eos] : [];
  const isToken = (token: number) => token >= 0;
  return {
    template: llama.model_chat_template(model, "rerank") ?? "",
    begin: (llama.vocab_get_add_bos(vocabulary) ? [bos] : []).filter(isToken),
    between: [...end, ...(llama.vocab_get_add_sep(vocabulary) ? [sep] : [])].filter(isToken),
    end: end.filter(isToken),
  };
}

/**
 * The library drops bytes that no token of a byte-pair vocabulary spells. Two other kinds replace
 * unknown text by a token or more for each byte; the rest may drop anything.
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

interface Spellings extends Pick<VocabularyTable, "bytes" | "offsets" | "flags"> {
  /** 1 for each token that encodes a byte. */
  readonly isByte: Uint8Array;
}

function cutsOf(type: number, all: Spellings, metadata: (key: string) => string): TextCuts {
  const nowhere = { atSpaces: false, atSymbols: false, anywhere: false, known: undefined };
  const none: TextCuts = { ...nowhere, inDigits: false, spaceTokens: 0 };
  const atSpaces = !joinsWords(all);
  if (type === SENTENCE_PIECE) {
    const isSpaceAdded = metadata("tokenizer.ggml.add_space_prefix") !== "false";
    const spaceTokens = isSpaceAdded ? tokensOfSpace(all) : 0;
    return { ...none, atSpaces, known: knownPoints(all), spaceTokens };
  }
  if (type !== BYTE_PAIRS) return none;
  // Its pattern looks ahead from each digit to the end of the run, and divides a text nowhere else.
  if (metadata("tokenizer.ggml.pre") === "superbpe") return { ...none, inDigits: true };
  return { ...none, atSpaces, atSymbols: true, anywhere: true };
}

/** The value of a key in the model's file; empty where there is none. */
export function metadataOf(llama: Llama, model: Pointer, key: string): string {
  const value = new Uint8Array(MAX_VALUE_BYTES);
  const length = llama.model_meta_val_str(model, key, value, value.length);
  return Buffer.from(value.subarray(0, Math.max(0, length))).toString("utf8");
}

/** One token, or one for each byte of its mark. */
function tokensOfSpace({ bytes, offsets, isByte }: Spellings): number {
  for (let token = 0; token + 1 < offsets.length; token++) {
    const at = offsets[token] as number;
    if (offsets[token + 1] === at + 1 && bytes[at] === 0x20 && !isByte[token]) return 1;
  }
  return Buffer.byteLength(String.fromCodePoint(SPACE_MARK));
}

/** A bit for each code point that is in a token's text. */
function knownPoints({ bytes, offsets, flags, isByte }: Spellings): Uint8Array {
  const known = new Uint8Array(CODE_POINTS / 8);
  const add = (point: number) => {
    known[point >> 3] = (known[point >> 3] as number) | (1 << (point & 7));
  };
  add(SPACE_MARK);
  for (let token = 0; token + 1 < offsets.length; token++) {
    if (isByte[token] || (flags[token] as number) & (IS_CONTROL | IS_PARSED)) continue;
    const text = Buffer.from(bytes.slice(offsets[token], offsets[token + 1])).toString("utf8");
    for (const char of text) add(char.codePointAt(0) as number);
  }
  return known;
}

/** Whether a token continues after a word and a space: then words are not tokenized by themselves. */
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

/** Gives the control tokens of these texts a text; true for those that the vocabulary has. */
export function markTokens({ bytes, offsets, flags }: VocabularyTable, texts: readonly string[]) {
  const found: string[] = [];
  flags.forEach((flag, token) => {
    if (!(flag & IS_CONTROL) || flag & ENDS_GENERATION) return;
    const text = Buffer.from(bytes.slice(offsets[token], offsets[token + 1])).toString("utf8");
    if (!texts.includes(text)) return;
    flags[token] = flag | IS_MARK;
    found.push(text);
  });
  return found;
}

/** A token's bytes as grammars read them; empty for a token that has no text. */
export function grammarBytes(
  { bytes, offsets, flags }: Pick<VocabularyTable, "bytes" | "offsets" | "flags">,
  token: number,
): Uint8Array {
  const spelling = bytes.subarray(offsets[token], offsets[token + 1]);
  if ((flags[token] as number) & IS_MARK) return markedBytes(spelling);
  return spelling.includes(MARK_BYTE) ? NO_BYTES : spelling;
}

/** Whether a token has no text. */
export function isSilent(flags: number): boolean {
  return (flags & (IS_CONTROL | IS_MARK)) === IS_CONTROL;
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
