import { readFileSync, statSync } from "node:fs";
import { AppError } from "@heddle/base/errors";
import { validate } from "@heddle/contracts/validation";
import { byteLetters } from "@heddle/engines/gguf/byte-letters";
import {
  type ByteVocabulary,
  filledVocabulary,
  isControl,
  isUnused,
  type SpelledToken,
} from "@heddle/engines/gguf/llama-model";
import { type BpeVocabulary, MAX_TOKENS } from "@heddle/training/tokenizer/bpe-vocabulary";
import { z } from "zod";
import { quoted } from "./data-files.ts";

/** Hugging Face's `tokenizer.json`: byte-level byte-pair encoding with GPT-2's pattern only. */
const schema = z.object({
  normalizer: z.null("only texts that are taken as they are can be encoded").optional(),
  pre_tokenizer: z.object({
    type: z.literal("ByteLevel", "only GPT-2's, ByteLevel alone, is known"),
    add_prefix_space: z.literal(false, "a space before each text is not added"),
    use_regex: z.literal(true).default(true),
  }),
  added_tokens: z
    .array(
      z.object({
        id: z
          .int()
          .min(0)
          .max(MAX_TOKENS - 1),
        content: z.string(),
        special: z.literal(true, "only special tokens can be added"),
      }),
    )
    .default([]),
  model: z.object({
    type: z.literal("BPE"),
    vocab: z.record(
      z.string(),
      z
        .int()
        .min(0)
        .max(MAX_TOKENS - 1),
    ),
    merges: z.array(z.union([z.string(), z.tuple([z.string(), z.string()])])),
    byte_fallback: z.literal(false).default(false),
    ignore_merges: z.literal(false).default(false),
    dropout: z.null().optional(),
    continuing_subword_prefix: z.union([z.null(), z.literal("")]).optional(),
    end_of_word_suffix: z.union([z.null(), z.literal("")]).optional(),
  }),
});

type TokenizerFile = z.output<typeof schema>;

const MAX_FILE_BYTES = 64 * 2 ** 20;
/** Common names of the token that ends a text, the likeliest first. */
const ENDS = ["<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|im_end|>"];
const PADS = ["<pad>", "<|pad|>", "[PAD]", "<|padding|>"];

/** Reads a `tokenizer.json`. Throws an AppError `invalid_value` that names the unsupported part. */
export function readTokenizerJson(path: string): {
  readonly bpe: BpeVocabulary;
  readonly vocabulary: ByteVocabulary;
} {
  const { model, added_tokens } = parsed(path);
  const spelled = spelledTokens(path, model.vocab, added_tokens);
  const bpe = bpeOf(path, model, spelled);
  const merges = model.merges.map((merge) => (typeof merge === "string" ? merge : merge.join(" ")));
  const controls = spelled.flatMap(({ text, kind }, id) =>
    kind === "control" ? [{ text, id }] : [],
  );
  const named = (names: readonly string[]) =>
    names.flatMap((name) => controls.filter(({ text }) => text === name))[0]?.id;
  const end = named(ENDS) ?? controls[0]?.id ?? spelled.length;
  // The engine needs a token that ends a text, also where the file has none.
  if (end === spelled.length) spelled.push({ text: ENDS[0] ?? "", kind: "control" });
  const roles = { begin: end, end, padding: named(PADS) ?? end };
  return { bpe, vocabulary: filledVocabulary(spelled, { merges, ...roles }) };
}

/** The vocabulary as a `tokenizer.json`, for other programs and other jobs. */
export function tokenizerJson(vocabulary: ByteVocabulary): string {
  const { tokens, types, merges } = vocabulary;
  const ids = tokens.flatMap((content, id) => (isUnused(types[id]) ? [] : [{ id, content }]));
  const byteLevel = {
    type: "ByteLevel",
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: true,
  };
  const added = ids.filter(({ id }) => isControl(types[id]));
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false };
  const file = {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: added.map((token) => ({ ...token, ...flags, special: true })),
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(ids.map(({ id, content }) => [content, id])),
      merges: merges.map((merge) => merge.split(" ")),
    },
  };
  return JSON.stringify(file);
}

function parsed(path: string): TokenizerFile {
  try {
    const status = statSync(path);
    if (!status.isFile()) throw new Error("it is not a file");
    if (status.size > MAX_FILE_BYTES) throw new Error(`it has more than ${MAX_FILE_BYTES} bytes`);
    return validate(schema, JSON.parse(readFileSync(path, "utf8")));
  } catch (cause) {
    throw fault(path, cause instanceof Error ? cause.message : String(cause), cause);
  }
}

/** Indexed by number; an unused token for a gap. */
function spelledTokens(
  path: string,
  vocab: Readonly<Record<string, number>>,
  added: TokenizerFile["added_tokens"],
): SpelledToken[] {
  const spelled: SpelledToken[] = [];
  const controls = new Map(added.map(({ id, content }) => [id, content]));
  for (const [text, id] of Object.entries(vocab)) {
    if (spelled[id])
      throw fault(path, `${quoted(text)} and ${quoted(spelled[id].text)} have the number ${id}`);
    if (!controls.has(id)) spelled[id] = { text, kind: "text" };
  }
  for (const [id, text] of controls) spelled[id] = { text, kind: "control" };
  return Array.from(spelled, (token, id) => token ?? { text: `<unused${id}>`, kind: "unused" });
}

function bpeOf(
  path: string,
  { merges }: TokenizerFile["model"],
  spelled: readonly SpelledToken[],
): BpeVocabulary {
  const letters = byteLetters();
  const bytes = new Map(letters.map((letter, byte) => [letter, byte]));
  const ids = new Map(
    spelled.flatMap(({ text, kind }, id) => (kind === "text" ? [[text, id]] : [])),
  );
  const idOf = (text: string) => {
    const id = ids.get(text);
    if (id === undefined) throw fault(path, `its vocabulary has no token ${quoted(text)}`);
    return id;
  };
  return {
    byteTokens: Int32Array.from(letters, idOf),
    pieces: spelled.map(({ text, kind }) =>
      kind === "text" ? Uint8Array.from(text, (letter) => bytes.get(letter) ?? 0) : undefined,
    ),
    merges: merges.map((merge) => {
      const [left = "", right = ""] = typeof merge === "string" ? merge.split(" ") : merge;
      return { left: idOf(left), right: idOf(right), result: idOf(left + right) };
    }),
  };
}

function fault(path: string, what: string, cause?: unknown): AppError {
  const message = `the tokenizer ${path} cannot be used: ${what}`;
  return new AppError("invalid_value", message, { param: "config.tokenizer.path", cause });
}
