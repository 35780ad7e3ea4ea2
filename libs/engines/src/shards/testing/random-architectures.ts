import { type Random, seededRandom } from "@heddle/base/random";
import type { GgufValue } from "../../gguf/gguf-format.ts";
import { type GgufTensor, writeGguf } from "../../gguf/gguf-writer.ts";

/** Sizes of the models; the square root of the embedding's is no round number. */
export const BLOCKS = 12;
const EMBEDDING = 96;
const HEADS = 6;
const KV_HEADS = 2;
const HEAD = 16;
const FEED_FORWARD = 128;
const EXPERTS = 4;
export const VOCABULARY = 320;

type Shape = readonly number[];
type Shapes = Readonly<Record<string, Shape>>;

/** What differs from a block of `llama`. */
interface Architecture {
  readonly metadata?: Readonly<Record<string, GgufValue>>;
  readonly more?: Shapes;
  readonly without?: readonly string[];
  readonly hasOutput?: boolean;
}

const number = (value: number): GgufValue => ({ type: "uint32", value });
const float = (value: number): GgufValue => ({ type: "float32", value });
const text = (value: string): GgufValue => ({ type: "string", value });

const BLOCK: Shapes = {
  "attn_norm.weight": [EMBEDDING],
  "attn_q.weight": [EMBEDDING, HEADS * HEAD],
  "attn_k.weight": [EMBEDDING, KV_HEADS * HEAD],
  "attn_v.weight": [EMBEDDING, KV_HEADS * HEAD],
  "attn_output.weight": [HEADS * HEAD, EMBEDDING],
  "ffn_norm.weight": [EMBEDDING],
  "ffn_gate.weight": [EMBEDDING, FEED_FORWARD],
  "ffn_up.weight": [EMBEDDING, FEED_FORWARD],
  "ffn_down.weight": [FEED_FORWARD, EMBEDDING],
};
const HEAD_NORMS: Shapes = { "attn_q_norm.weight": [HEAD], "attn_k_norm.weight": [HEAD] };
const WINDOW = { "attention.sliding_window": number(8) };

const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  llama: { hasOutput: true },
  qwen2: {
    more: {
      "attn_q.bias": [HEADS * HEAD],
      "attn_k.bias": [KV_HEADS * HEAD],
      "attn_v.bias": [KV_HEADS * HEAD],
    },
  },
  qwen3: { more: HEAD_NORMS },
  qwen3moe: {
    more: {
      ...HEAD_NORMS,
      "ffn_gate_inp.weight": [EMBEDDING, EXPERTS],
      "ffn_gate_exps.weight": [EMBEDDING, FEED_FORWARD, EXPERTS],
      "ffn_up_exps.weight": [EMBEDDING, FEED_FORWARD, EXPERTS],
      "ffn_down_exps.weight": [FEED_FORWARD, EMBEDDING, EXPERTS],
    },
    without: ["ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"],
    metadata: {
      expert_count: number(EXPERTS),
      expert_used_count: number(2),
      expert_feed_forward_length: number(FEED_FORWARD),
    },
  },
  granite: {
    metadata: {
      embedding_scale: float(12),
      residual_scale: float(0.22),
      logit_scale: float(8),
      "attention.scale": float(0.0625),
    },
  },
  phi3: {
    more: {
      "attn_qkv.weight": [EMBEDDING, (HEADS + 2 * KV_HEADS) * HEAD],
      "ffn_up.weight": [EMBEDDING, 2 * FEED_FORWARD],
    },
    without: ["attn_q.weight", "attn_k.weight", "attn_v.weight", "ffn_gate.weight"],
  },
  gemma3: {
    more: {
      ...HEAD_NORMS,
      "post_attention_norm.weight": [EMBEDDING],
      "post_ffw_norm.weight": [EMBEDDING],
    },
    metadata: {
      ...WINDOW,
      "attention.key_length": number(HEAD),
      "attention.value_length": number(HEAD),
      "rope.freq_base_swa": float(10_000),
    },
  },
  cohere2: {
    without: ["ffn_norm.weight"],
    metadata: {
      ...WINDOW,
      logit_scale: float(0.25),
      "attention.layer_norm_epsilon": float(1e-5),
    },
  },
  smollm3: {},
};

/** Architectures of which a model can be written here. */
export const ARCHITECTURE_NAMES: readonly string[] = Object.keys(ARCHITECTURES);

/** Writes a model of random weights (F32) of the architecture. The same seed gives the same bytes. */
export async function writeRandomModel(path: string, name: string, seed = 12345): Promise<void> {
  const architecture = ARCHITECTURES[name];
  if (!architecture) throw new Error(`there is no architecture ${name} here`);
  const random = seededRandom(seed);
  await writeGguf(path, {
    metadata: metadataOf(name, architecture),
    tensors: tensorsOf(architecture, random),
  });
}

function metadataOf(name: string, { metadata = {} }: Architecture): Map<string, GgufValue> {
  const own: Record<string, GgufValue> = {
    block_count: number(BLOCKS),
    context_length: number(512),
    embedding_length: number(EMBEDDING),
    feed_forward_length: number(FEED_FORWARD),
    "attention.head_count": number(HEADS),
    "attention.head_count_kv": number(KV_HEADS),
    "attention.layer_norm_rms_epsilon": float(1e-5),
    "rope.dimension_count": number(HEAD),
    "rope.freq_base": float(10_000),
    vocab_size: number(VOCABULARY),
    ...metadata,
  };
  const tokens = Array.from({ length: VOCABULARY }, (_, i) => `<t${i}>`);
  return new Map<string, GgufValue>([
    ["general.architecture", text(name)],
    ...Object.entries(own).map(([key, value]) => [`${name}.${key}`, value] as const),
    ["tokenizer.ggml.model", text("llama")],
    ["tokenizer.ggml.tokens", { type: "array", items: "string", value: tokens }],
    ["tokenizer.ggml.scores", { type: "array", items: "float32", value: tokens.map(() => 0) }],
    ["tokenizer.ggml.token_type", { type: "array", items: "int32", value: tokens.map(() => 1) }],
  ]);
}

function tensorsOf(
  { more = {}, without = [], hasOutput = false }: Architecture,
  random: Random,
): GgufTensor[] {
  const block = Object.entries({ ...BLOCK, ...more }).filter(([name]) => !without.includes(name));
  const shapes: [string, Shape][] = [
    ["token_embd.weight", [EMBEDDING, VOCABULARY]],
    ["output_norm.weight", [EMBEDDING]],
    ...(hasOutput ? [["output.weight", [EMBEDDING, VOCABULARY]] as [string, Shape]] : []),
    ...Array.from({ length: BLOCKS }, (_, i) =>
      block.map(([name, shape]): [string, Shape] => [`blk.${i}.${name}`, shape]),
    ).flat(),
  ];
  return shapes.map(([name, shape]) => {
    const items = shape.reduce((product, size) => product * size, 1);
    const [mean, spread] = name.includes("norm") ? [1, 1] : [0, name.startsWith("blk.") ? 0.4 : 1];
    const values = Float32Array.from({ length: items }, () => mean + spread * (random() - 0.5));
    return { name, shape, type: "F32" as const, values: () => [values] };
  });
}
