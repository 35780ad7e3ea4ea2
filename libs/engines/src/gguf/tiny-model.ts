import { type Random, seededRandom } from "@heddle/base/random";
import { CHATML_TEMPLATE } from "../text/chat-template.ts";
import type { GgufValue } from "./gguf-format.ts";
import { type GgufTensor, writeGguf } from "./gguf-writer.ts";

/** The shape of the model; the same as no real one. */
const EMBEDDING = 96;
const BLOCKS = 2;
const HEADS = 4;
const KV_HEADS = 2;
const FEED_FORWARD = 256;
const HEAD_SIZE = EMBEDDING / HEADS;

/** Token types of llama.cpp (enum llama_token_type). */
const NORMAL = 1;
const CONTROL = 3;
const UNUSED = 5;
/** llama_ftype LLAMA_FTYPE_MOSTLY_F16. */
const FILE_TYPE_MOSTLY_F16 = 1;

/**
 * Writes a llama model of random weights (0.3 M parameters, F16, 0.6 MB) with a byte-level BPE
 * vocabulary, so that any text can be tokenized and any tokens are text, and a ChatML template.
 * Its answers are noise. The same seed gives the same bytes on every machine.
 */
export async function writeTinyModel(
  path: string,
  options: { readonly seed?: number; readonly contextTokens?: number } = {},
): Promise<void> {
  const { seed = 1234, contextTokens = 4096 } = options;
  const vocabulary = byteLevelVocabulary();
  const metadata = new Map([
    ...architecture(contextTokens, vocabulary.tokens.length),
    ...tokenizer(vocabulary),
  ]);
  const tensors = tensorsOf(vocabulary.tokens.length, seededRandom(seed));
  await writeGguf(path, { metadata, tensors });
}

interface Vocabulary {
  readonly tokens: readonly string[];
  readonly types: readonly number[];
  readonly merges: readonly string[];
}

/** Four control tokens, the 256 bytes, and merges of frequent English letter pairs. */
function byteLevelVocabulary(): Vocabulary {
  const tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<pad>"];
  const types = tokens.map(() => CONTROL);
  const letters = byteLetters();
  const merges: string[] = [];
  tokens.push(...letters);
  const space = letters[0x20] ?? "";
  for (const first of [space, ..."etaoinshrdlu"]) {
    for (const second of "etaoinshrdlucm") {
      merges.push(`${first} ${second}`);
      tokens.push(first + second);
    }
  }
  while (types.length < tokens.length) types.push(NORMAL);
  for (; tokens.length % 32 !== 0; types.push(UNUSED)) tokens.push(`<unused${tokens.length}>`);
  return { tokens, types, merges };
}

/** GPT-2's letter for each byte: printable bytes stand for themselves, others move above U+0100. */
function byteLetters(): string[] {
  let moved = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCharCode(printable ? byte : 256 + moved++);
  });
}

function architecture(contextTokens: number, vocabularySize: number): [string, GgufValue][] {
  return [
    ["general.architecture", { type: "string", value: "llama" }],
    ["general.name", { type: "string", value: "tiny random model" }],
    ["general.file_type", uint32(FILE_TYPE_MOSTLY_F16)],
    ["llama.vocab_size", uint32(vocabularySize)],
    ["llama.context_length", uint32(contextTokens)],
    ["llama.embedding_length", uint32(EMBEDDING)],
    ["llama.block_count", uint32(BLOCKS)],
    ["llama.feed_forward_length", uint32(FEED_FORWARD)],
    ["llama.attention.head_count", uint32(HEADS)],
    ["llama.attention.head_count_kv", uint32(KV_HEADS)],
    ["llama.attention.layer_norm_rms_epsilon", { type: "float32", value: 1e-5 }],
    ["llama.rope.dimension_count", uint32(HEAD_SIZE)],
    ["llama.rope.freq_base", { type: "float32", value: 10_000 }],
  ];
}

function tokenizer(vocabulary: Vocabulary): [string, GgufValue][] {
  return [
    ["tokenizer.ggml.model", { type: "string", value: "gpt2" }],
    ["tokenizer.ggml.pre", { type: "string", value: "gpt-2" }],
    ["tokenizer.ggml.tokens", { type: "array", items: "string", value: vocabulary.tokens }],
    ["tokenizer.ggml.token_type", { type: "array", items: "int32", value: vocabulary.types }],
    ["tokenizer.ggml.merges", { type: "array", items: "string", value: vocabulary.merges }],
    ["tokenizer.ggml.bos_token_id", uint32(0)],
    ["tokenizer.ggml.eos_token_id", uint32(2)],
    ["tokenizer.ggml.padding_token_id", uint32(3)],
    ["tokenizer.ggml.add_bos_token", { type: "bool", value: false }],
    ["tokenizer.chat_template", { type: "string", value: CHATML_TEMPLATE }],
  ];
}

function uint32(value: number): GgufValue {
  return { type: "uint32", value };
}

/** In the file's order, which is the order in which the random numbers are drawn. */
function tensorsOf(vocabularySize: number, random: Random): GgufTensor[] {
  const matrix = (name: string, columns: number, rows: number, deviation: number): GgufTensor => ({
    name: `${name}.weight`,
    shape: [columns, rows],
    type: "F16",
    values: () => [bellShaped(columns * rows, deviation, random)],
  });
  const ones = (name: string): GgufTensor => ({
    name: `${name}.weight`,
    shape: [EMBEDDING],
    type: "F32",
    values: () => [new Float32Array(EMBEDDING).fill(1)],
  });
  const kvSize = KV_HEADS * HEAD_SIZE;
  const wide = 1 / Math.sqrt(EMBEDDING);
  const block = (i: number) => [
    ones(`blk.${i}.attn_norm`),
    ones(`blk.${i}.ffn_norm`),
    matrix(`blk.${i}.attn_q`, EMBEDDING, EMBEDDING, wide),
    matrix(`blk.${i}.attn_k`, EMBEDDING, kvSize, wide),
    matrix(`blk.${i}.attn_v`, EMBEDDING, kvSize, wide),
    matrix(`blk.${i}.attn_output`, EMBEDDING, EMBEDDING, wide),
    matrix(`blk.${i}.ffn_gate`, EMBEDDING, FEED_FORWARD, wide),
    matrix(`blk.${i}.ffn_up`, EMBEDDING, FEED_FORWARD, wide),
    matrix(`blk.${i}.ffn_down`, FEED_FORWARD, EMBEDDING, 1 / Math.sqrt(FEED_FORWARD)),
  ];
  return [
    matrix("token_embd", EMBEDDING, vocabularySize, 0.5),
    ...Array.from({ length: BLOCKS }, (_, i) => block(i)).flat(),
    ones("output_norm"),
    matrix("output", EMBEDDING, vocabularySize, 1.5 * wide),
  ];
}

/**
 * Numbers of mean 0 and the given standard deviation: a sum of four uniform ones, which is nearly
 * normal and, unlike a logarithm or a cosine, is the same to the last bit on every machine.
 */
function bellShaped(length: number, deviation: number, random: Random): Float32Array {
  const scale = deviation * Math.sqrt(3);
  return Float32Array.from(
    { length },
    () => (random() + random() + random() + random() - 2) * scale,
  );
}
