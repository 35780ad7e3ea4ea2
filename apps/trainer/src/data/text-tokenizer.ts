import { createHash } from "node:crypto";
import type { LanguageModelTraining } from "@heddle/contracts/training";
import { byteLetters } from "@heddle/engines/gguf/byte-letters";
import {
  type ByteVocabulary,
  byteVocabulary,
  CONTROL_ROLES,
  CONTROL_TOKENS,
  FIRST_BYTE_TOKEN,
  filledVocabulary,
  type SpelledToken,
} from "@heddle/engines/gguf/llama-model";
import { BpeTokenizer } from "@heddle/training/tokenizer/bpe-tokenizer";
import { trainBpe } from "@heddle/training/tokenizer/bpe-trainer";
import { type BpeVocabulary, vocabularyOf } from "@heddle/training/tokenizer/bpe-vocabulary";
import { readTokenizerJson } from "./tokenizer-json.ts";

/** A model's tokenizer, and its description for the inference engine. */
export interface TextTokenizer {
  readonly vocabulary: ByteVocabulary;
  /** SHA-256 of the tokens' bytes and the merges, hexadecimal; absent where bytes are tokens. */
  readonly digest?: string | undefined;
  encode(text: Uint8Array): Int32Array;
  /** Special tokens without text decode to nothing. */
  decode(tokens: Iterable<number>): Uint8Array;
}

/**
 * The tokenizer of a config. A learned one depends on the text only, so that all ranks and later
 * attempts have the same. Throws an AppError `invalid_value` for an unusable file.
 */
export function textTokenizer(
  config: LanguageModelTraining["tokenizer"],
  text: Uint8Array,
): TextTokenizer {
  switch (config.type) {
    case "byte":
      return BYTES;
    case "bpe":
      return learned(text, config.vocab_size);
    case "huggingface": {
      const { bpe, vocabulary } = readTokenizerJson(config.path);
      return withDigest(bpe, vocabulary);
    }
    default:
      return config satisfies never;
  }
}

const BYTES: TextTokenizer = {
  vocabulary: byteVocabulary([]),
  encode: (text) => Int32Array.from(text, (byte) => byte + FIRST_BYTE_TOKEN),
  decode: (tokens) =>
    Uint8Array.from(
      [...tokens].flatMap((token) => {
        const byte = token - FIRST_BYTE_TOKEN;
        return byte >= 0 && byte < 256 ? [byte] : [];
      }),
    ),
};

function learned(text: Uint8Array, tokens: number): TextTokenizer {
  const pairs = trainBpe(text, tokens - FIRST_BYTE_TOKEN - 256);
  const bpe = vocabularyOf(pairs, FIRST_BYTE_TOKEN);
  const letters = byteLetters();
  const texts = bpe.pieces.map((piece) =>
    Array.from(piece ?? [], (byte) => letters[byte]).join(""),
  );
  const spelled = texts.map(
    (token, at): SpelledToken =>
      at < FIRST_BYTE_TOKEN
        ? { text: CONTROL_TOKENS[at] ?? "", kind: "control" }
        : { text: token, kind: "text" },
  );
  const merges = bpe.merges.map(({ left, right }) => `${texts[left]} ${texts[right]}`);
  return withDigest(bpe, filledVocabulary(spelled, { merges, ...CONTROL_ROLES }));
}

function withDigest(bpe: BpeVocabulary, vocabulary: ByteVocabulary): TextTokenizer {
  const tokenizer = new BpeTokenizer(bpe);
  const { tokens, types, merges } = vocabulary;
  return {
    vocabulary,
    digest: createHash("sha256").update(JSON.stringify({ tokens, types, merges })).digest("hex"),
    encode: (text) => tokenizer.encode(text),
    decode: (made) => tokenizer.decode(made),
  };
}
