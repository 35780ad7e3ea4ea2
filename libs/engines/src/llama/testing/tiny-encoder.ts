import { seededRandom } from "@heddle/base/random";
import type { GgufValue } from "../../gguf/gguf-format.ts";
import { type GgufTensor, writeGguf } from "../../gguf/gguf-writer.ts";
import { byteVocabulary } from "../../gguf/llama-model.ts";

const WIDTH = 64;
const HEADS = 4;
const BLOCKS = 2;
const INNER = 128;
const CONTEXT = 768;
const RANK = 4;

/**
 * Writes an encoder of BERT's shape with random weights and a byte-level vocabulary. `pooling` is
 * llama.cpp's number. The same bytes on every machine.
 */
export async function writeTinyEncoder(path: string, pooling: number): Promise<void> {
  const vocabulary = byteVocabulary([]);
  const metadata = new Map<string, GgufValue>([
    ["general.architecture", { type: "string", value: "bert" }],
    ["bert.context_length", uint32(CONTEXT)],
    ["bert.embedding_length", uint32(WIDTH)],
    ["bert.block_count", uint32(BLOCKS)],
    ["bert.feed_forward_length", uint32(INNER)],
    ["bert.attention.head_count", uint32(HEADS)],
    ["bert.attention.layer_norm_epsilon", { type: "float32", value: 1e-12 }],
    ["bert.attention.causal", { type: "bool", value: false }],
    ["bert.pooling_type", uint32(pooling)],
    ["tokenizer.ggml.token_type_count", uint32(2)],
    ["tokenizer.ggml.model", { type: "string", value: "gpt2" }],
    ["tokenizer.ggml.pre", { type: "string", value: "gpt-2" }],
    ["tokenizer.ggml.tokens", { type: "array", items: "string", value: vocabulary.tokens }],
    ["tokenizer.ggml.token_type", { type: "array", items: "int32", value: vocabulary.types }],
    ["tokenizer.ggml.merges", { type: "array", items: "string", value: vocabulary.merges }],
    ["tokenizer.ggml.bos_token_id", uint32(vocabulary.begin)],
    ["tokenizer.ggml.eos_token_id", uint32(vocabulary.end)],
    ["tokenizer.ggml.add_bos_token", { type: "bool", value: false }],
  ]);
  const tensors = tensorsOf(vocabulary.tokens.length, pooling === RANK);
  await writeGguf(path, { metadata, tensors });
}

function uint32(value: number): GgufValue {
  return { type: "uint32", value };
}

function tensorsOf(words: number, ranks: boolean): GgufTensor[] {
  const random = seededRandom(7);
  const matrix = (name: string, columns: number, rows: number): GgufTensor => {
    const scale = Math.sqrt(3 / columns);
    const values = Float32Array.from({ length: columns * rows }, () => (random() * 2 - 1) * scale);
    return { name: `${name}.weight`, shape: [columns, rows], type: "F32", values: () => [values] };
  };
  const vector = (name: string, length: number, value: number): GgufTensor => {
    const values = new Float32Array(length).fill(value);
    return { name, shape: [length], type: "F32", values: () => [values] };
  };
  const norm = (name: string) => [
    vector(`${name}.weight`, WIDTH, 1),
    vector(`${name}.bias`, WIDTH, 0),
  ];
  const linear = (name: string, columns: number, rows: number) => [
    matrix(name, columns, rows),
    vector(`${name}.bias`, rows, 0.01),
  ];
  const block = (i: number) => [
    ...linear(`blk.${i}.attn_q`, WIDTH, WIDTH),
    ...linear(`blk.${i}.attn_k`, WIDTH, WIDTH),
    ...linear(`blk.${i}.attn_v`, WIDTH, WIDTH),
    ...linear(`blk.${i}.attn_output`, WIDTH, WIDTH),
    ...norm(`blk.${i}.attn_output_norm`),
    ...linear(`blk.${i}.ffn_up`, WIDTH, INNER),
    ...linear(`blk.${i}.ffn_down`, INNER, WIDTH),
    ...norm(`blk.${i}.layer_output_norm`),
  ];
  return [
    matrix("token_embd", WIDTH, words),
    matrix("token_types", WIDTH, 2),
    matrix("position_embd", WIDTH, CONTEXT),
    ...norm("token_embd_norm"),
    ...Array.from({ length: BLOCKS }, (_, i) => block(i)).flat(),
    ...(ranks ? [...linear("cls", WIDTH, WIDTH), ...linear("cls.output", WIDTH, 1)] : []),
  ];
}
