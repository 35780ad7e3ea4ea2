import { CHATML_TEMPLATE } from "../text/template-choice.ts";
import { byteLetters } from "./byte-letters.ts";
import type { GgufValue } from "./gguf-format.ts";
import { type GgufTensor, writeGguf } from "./gguf-writer.ts";
import type { WritableTensorType } from "./tensor-encoding.ts";

/** The sizes of a decoder of LLaMA's shape. */
export interface LlamaShape {
  readonly embedding: number;
  readonly blocks: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly feedForward: number;
  readonly contextTokens: number;
  readonly normEpsilon: number;
  readonly ropeBase: number;
}

/** Token types of llama.cpp (enum llama_token_type). */
const NORMAL = 1;
const CONTROL = 3;
const UNUSED = 5;
/** Tokens of a vocabulary are a multiple of this, so that rows of the output are aligned. */
const TOKENS_MULTIPLE = 32;

/** llama_ftype: LLAMA_FTYPE_ALL_F32, _MOSTLY_F16 and _MOSTLY_Q8_0. */
const FILE_TYPES: Readonly<Record<WritableTensorType, number>> = { F32: 0, F16: 1, Q8_0: 7 };

/** A byte-level vocabulary: each of the 256 bytes is a token, and merges make pairs of them. */
export interface ByteVocabulary {
  readonly tokens: readonly string[];
  readonly types: readonly number[];
  readonly merges: readonly string[];
  readonly begin: number;
  readonly end: number;
  readonly padding: number;
}

/** Control tokens of the vocabularies made here; the bytes follow, in their own order. */
export const CONTROL_TOKENS: readonly string[] = [
  "<|endoftext|>",
  "<|im_start|>",
  "<|im_end|>",
  "<pad>",
];

/** What the control tokens are for. */
export const CONTROL_ROLES = { begin: 0, end: 2, padding: 3 } as const;

/** The token of byte 0. */
export const FIRST_BYTE_TOKEN = CONTROL_TOKENS.length;

/** A token as it is spelled; `unused` ones keep the numbers of others in their place. */
export interface SpelledToken {
  readonly text: string;
  readonly kind: "text" | "control" | "unused";
}

/** Whether a token of that type has no text. */
export function isControl(type: number | undefined): boolean {
  return type === CONTROL;
}

/** Whether a token of that type is there for its number alone. */
export function isUnused(type: number | undefined): boolean {
  return type === UNUSED;
}

/** Fills the tokens up to a multiple of 32. */
export function filledVocabulary(
  given: readonly SpelledToken[],
  rest: Pick<ByteVocabulary, "merges" | "begin" | "end" | "padding">,
): ByteVocabulary {
  const all = [...given];
  while (all.length % TOKENS_MULTIPLE !== 0) {
    all.push({ text: `<unused${all.length}>`, kind: "unused" });
  }
  const types = { text: NORMAL, control: CONTROL, unused: UNUSED };
  return {
    tokens: all.map(({ text }) => text),
    types: all.map(({ kind }) => types[kind]),
    ...rest,
  };
}

/** With merges of the given pairs of letters; filled up to a multiple of 32 tokens. */
export function byteVocabulary(pairs: readonly (readonly [string, string])[]): ByteVocabulary {
  const letters = byteLetters();
  const spelled = (letter: string) => (letter === " " ? (letters[0x20] ?? "") : letter);
  const merged = pairs.map(([first, second]) => [spelled(first), spelled(second)] as const);
  const texts = [...letters, ...merged.map((pair) => pair.join(""))];
  const controls = CONTROL_TOKENS.map((text): SpelledToken => ({ text, kind: "control" }));
  return filledVocabulary(
    [...controls, ...texts.map((text): SpelledToken => ({ text, kind: "text" }))],
    { merges: merged.map((pair) => pair.join(" ")), ...CONTROL_ROLES },
  );
}

/** A model to write: its weights by GGUF's names, without `.weight`, rows of outputs. */
export interface LlamaModel {
  readonly name: string;
  readonly shape: LlamaShape;
  readonly vocabulary: ByteVocabulary;
  /** How matrices are stored; vectors are always F32. */
  readonly type: WritableTensorType;
  /** Jinja; ChatML where absent, and none in the file where null. */
  readonly chatTemplate?: string | null | undefined;
  readonly metadata?: ReadonlyMap<string, GgufValue> | undefined;
  /** Called once for each tensor, in the file's order; a large one may come in pieces, of arrays that do not change. */
  weights(name: string, columns: number, rows: number): Float32Array | Iterable<Float32Array>;
}

/** Writes a model of llama.cpp's architecture `llama`, whole or not at all. */
export async function writeLlamaModel(path: string, model: LlamaModel): Promise<void> {
  const metadata = new Map([
    ...architecture(model),
    ...tokenizer(model),
    ...(model.metadata ?? new Map<string, GgufValue>()),
  ]);
  await writeGguf(path, { metadata, tensors: tensorsOf(model) });
}

function architecture({ name, shape, vocabulary, type }: LlamaModel): [string, GgufValue][] {
  return [
    ["general.architecture", { type: "string", value: "llama" }],
    ["general.name", { type: "string", value: name }],
    ["general.file_type", uint32(FILE_TYPES[type])],
    ["llama.vocab_size", uint32(vocabulary.tokens.length)],
    ["llama.context_length", uint32(shape.contextTokens)],
    ["llama.embedding_length", uint32(shape.embedding)],
    ["llama.block_count", uint32(shape.blocks)],
    ["llama.feed_forward_length", uint32(shape.feedForward)],
    ["llama.attention.head_count", uint32(shape.heads)],
    ["llama.attention.head_count_kv", uint32(shape.kvHeads)],
    ["llama.attention.layer_norm_rms_epsilon", { type: "float32", value: shape.normEpsilon }],
    ["llama.rope.dimension_count", uint32(shape.embedding / shape.heads)],
    ["llama.rope.freq_base", { type: "float32", value: shape.ropeBase }],
  ];
}

function tokenizer(model: LlamaModel): [string, GgufValue][] {
  const { vocabulary, chatTemplate = CHATML_TEMPLATE } = model;
  const template: [string, GgufValue][] =
    chatTemplate === null
      ? []
      : [["tokenizer.chat_template", { type: "string", value: chatTemplate }]];
  return [
    ["tokenizer.ggml.model", { type: "string", value: "gpt2" }],
    ["tokenizer.ggml.pre", { type: "string", value: "gpt-2" }],
    ["tokenizer.ggml.tokens", { type: "array", items: "string", value: vocabulary.tokens }],
    ["tokenizer.ggml.token_type", { type: "array", items: "int32", value: vocabulary.types }],
    ["tokenizer.ggml.merges", { type: "array", items: "string", value: vocabulary.merges }],
    ["tokenizer.ggml.bos_token_id", uint32(vocabulary.begin)],
    ["tokenizer.ggml.eos_token_id", uint32(vocabulary.end)],
    ["tokenizer.ggml.padding_token_id", uint32(vocabulary.padding)],
    ["tokenizer.ggml.add_bos_token", { type: "bool", value: false }],
    ...template,
  ];
}

function uint32(value: number): GgufValue {
  return { type: "uint32", value };
}

function piecesOf(given: Float32Array | Iterable<Float32Array>): Iterable<Float32Array> {
  return given instanceof Float32Array ? [given] : given;
}

function tensorsOf({ shape, vocabulary, type, weights }: LlamaModel): GgufTensor[] {
  const { embedding, blocks, heads, kvHeads, feedForward } = shape;
  const matrix = (name: string, columns: number, rows: number): GgufTensor => ({
    name: `${name}.weight`,
    shape: [columns, rows],
    type,
    isTiled: true,
    values: () => piecesOf(weights(name, columns, rows)),
  });
  const vector = (name: string): GgufTensor => ({
    name: `${name}.weight`,
    shape: [embedding],
    type: "F32",
    values: () => piecesOf(weights(name, embedding, 1)),
  });
  const kvSize = (embedding / heads) * kvHeads;
  const block = (i: number) => [
    vector(`blk.${i}.attn_norm`),
    vector(`blk.${i}.ffn_norm`),
    matrix(`blk.${i}.attn_q`, embedding, embedding),
    matrix(`blk.${i}.attn_k`, embedding, kvSize),
    matrix(`blk.${i}.attn_v`, embedding, kvSize),
    matrix(`blk.${i}.attn_output`, embedding, embedding),
    matrix(`blk.${i}.ffn_gate`, embedding, feedForward),
    matrix(`blk.${i}.ffn_up`, embedding, feedForward),
    matrix(`blk.${i}.ffn_down`, feedForward, embedding),
  ];
  return [
    matrix("token_embd", embedding, vocabulary.tokens.length),
    ...Array.from({ length: blocks }, (_, i) => block(i)).flat(),
    vector("output_norm"),
    matrix("output", embedding, vocabulary.tokens.length),
  ];
}
