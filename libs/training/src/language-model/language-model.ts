import type { Graph } from "../ir/graph.ts";
import { bad } from "../ir/shapes.ts";
import type { Value } from "../ir/value.ts";
import type { ParameterSpec, ProgramOutputs, TrainingProgram } from "../training-program.ts";

/**
 * A decoder of LLaMA's architecture (Touvron et al., 2023), with the names of its published
 * settings.
 */
export interface LanguageModelShape {
  readonly vocab_size: number;
  readonly context_length: number;
  readonly hidden_size: number;
  readonly layers: number;
  readonly heads: number;
  /** Key and value heads; each is shared by `heads / kv_heads` query heads (Ainslie et al., 2023). */
  readonly kv_heads: number;
  readonly intermediate_size: number;
  readonly rope_theta: number;
  readonly norm_epsilon: number;
  /**
   * A digest of the vocabulary; absent where tokens are bytes. It is part of the embedding's name,
   * so that a worker or checkpoint with other tokens is refused as another model's.
   */
  readonly vocabulary?: string | undefined;
}

/** The embedding's name, without `.weight`. */
export function embeddingName({ vocabulary }: Pick<LanguageModelShape, "vocabulary">): string {
  return vocabulary === undefined ? "token_embd" : `token_embd.${vocabulary}`;
}

/** Throws an AppError `invalid_value` where the sizes do not divide. */
function checkShape(shape: LanguageModelShape): void {
  const { hidden_size, heads, kv_heads } = shape;
  if (hidden_size % heads !== 0 || (hidden_size / heads) % 2 !== 0) {
    throw bad(`hidden_size ${hidden_size} must be an even multiple of heads ${heads}`);
  }
  if (heads % kv_heads !== 0)
    throw bad(`heads ${heads} must be a multiple of kv_heads ${kv_heads}`);
}

/**
 * Matrices are [in, out]; names follow GGUF's except for the embedding, so that an export only
 * renames.
 */
export function languageModelParameters(shape: LanguageModelShape): ParameterSpec[] {
  checkShape(shape);
  const { vocab_size, hidden_size, layers, heads, kv_heads, intermediate_size } = shape;
  const narrow = (hidden_size / heads) * kv_heads;
  // GPT-2's initialization: what adds to the residual stream is smaller with depth.
  const into = 0.02 / Math.sqrt(2 * layers);
  const matrix = (name: string, rows: number, columns: number, deviation = 0.02) => ({
    name: `${name}.weight`,
    shape: [rows, columns],
    init: { kind: "normal", deviation } as const,
  });
  const gain = (name: string): ParameterSpec => ({
    name: `${name}.weight`,
    shape: [hidden_size],
    init: { kind: "ones" },
  });
  const blocks = Array.from({ length: layers }, (_, layer) => {
    const at = (name: string) => `blk.${layer}.${name}`;
    return [
      gain(at("attn_norm")),
      matrix(at("attn_q"), hidden_size, hidden_size),
      matrix(at("attn_k"), hidden_size, narrow),
      matrix(at("attn_v"), hidden_size, narrow),
      matrix(at("attn_output"), hidden_size, hidden_size, into),
      gain(at("ffn_norm")),
      matrix(at("ffn_gate"), hidden_size, intermediate_size),
      matrix(at("ffn_up"), hidden_size, intermediate_size),
      matrix(at("ffn_down"), intermediate_size, hidden_size, into),
    ];
  });
  return [
    matrix(embeddingName(shape), vocab_size, hidden_size),
    ...blocks.flat(),
    gain("output_norm"),
    matrix("output", hidden_size, vocab_size),
  ];
}

/**
 * Next-token prediction: data `tokens` and `targets`, i32 [batch, context_length]. The loss is the
 * mean cross-entropy in nats.
 */
export function languageModelProgram(shape: LanguageModelShape, batch: number): TrainingProgram {
  const size = [batch, shape.context_length];
  return {
    parameters: languageModelParameters(shape),
    data: [
      { name: "tokens", shape: size, type: "i32" },
      { name: "targets", shape: size, type: "i32" },
    ],
    build: (graph, inputs) => nextTokenLoss(graph, inputs, shape),
  };
}

function nextTokenLoss(
  graph: Graph,
  inputs: Readonly<Record<string, Value>>,
  shape: LanguageModelShape,
): ProgramOutputs {
  const logs = graph.logSoftmax(languageModelLogits(graph, inputs, shape));
  const targets = graph.reshape(inputs["targets"] as Value, [-1]);
  const chosen = graph.sum(graph.mul(logs, graph.oneHot(targets, shape.vocab_size)), [-1]);
  return { loss: graph.neg(graph.mean(chosen)), metrics: {} };
}

/** The logits [batch * context, vocab] for `inputs.tokens`. */
export function languageModelLogits(
  graph: Graph,
  inputs: Readonly<Record<string, Value>>,
  shape: LanguageModelShape,
): Value {
  const weight = (name: string) => inputs[`${name}.weight`] as Value;
  const { hidden_size, layers, norm_epsilon } = shape;
  const norm = (value: Value, name: string) => {
    const square = graph.mean(graph.square(value), [-1], true);
    const scaled = graph.div(value, graph.sqrt(graph.add(square, norm_epsilon)));
    return graph.mul(scaled, weight(name));
  };
  const embedded = graph.gatherRows(weight(embeddingName(shape)), inputs["tokens"] as Value);
  let stream = graph.reshape(embedded, [-1, hidden_size]);
  for (let layer = 0; layer < layers; layer++) {
    const at = (name: string) => `blk.${layer}.${name}`;
    const attended = attention(graph, norm(stream, at("attn_norm")), shape, (name) =>
      weight(at(name)),
    );
    stream = graph.add(stream, attended);
    const input = norm(stream, at("ffn_norm"));
    const gate = graph.silu(graph.matmul(input, weight(at("ffn_gate"))));
    const up = graph.matmul(input, weight(at("ffn_up")));
    stream = graph.add(stream, graph.matmul(graph.mul(gate, up), weight(at("ffn_down"))));
  }
  return graph.matmul(norm(stream, "output_norm"), weight("output"));
}

function attention(
  graph: Graph,
  input: Value,
  shape: LanguageModelShape,
  weight: (name: string) => Value,
): Value {
  const { heads, kv_heads, hidden_size, context_length: time } = shape;
  const width = hidden_size / heads;
  const shared = heads / kv_heads;
  // Query heads that share a key head are adjacent along time: [batch, kv, shared * time, width].
  const split = (name: string, count: number) => {
    const projected = graph.matmul(input, weight(name));
    return graph.transpose(graph.reshape(projected, [-1, time, count, width]), [0, 2, 1, 3]);
  };
  const query = rotate(graph, split("attn_q", heads), shape);
  const key = rotate(graph, split("attn_k", kv_heads), shape);
  const value = split("attn_v", kv_heads);
  const grouped = graph.reshape(query, [-1, kv_heads, shared * time, width]);
  const scores = graph.mul(
    graph.matmul(grouped, key, { transposeRight: true }),
    1 / Math.sqrt(width),
  );
  const weights = graph.softmax(graph.add(scores, causalMask(graph, shared, time)));
  const mixed = graph.reshape(graph.matmul(weights, value), [-1, heads, time, width]);
  const merged = graph.reshape(graph.transpose(mixed, [0, 2, 1, 3]), [-1, hidden_size]);
  return graph.matmul(merged, weight("attn_output"));
}

/**
 * 0 where a position may attend, a large negative number where it may not: [shared * time, time].
 */
function causalMask(graph: Graph, shared: number, time: number): Value {
  const mask = new Float32Array(shared * time * time);
  for (let row = 0; row < shared * time; row++) {
    mask.fill(-1e9, row * time + (row % time) + 1, (row + 1) * time);
  }
  return graph.constant(mask, [shared * time, time]);
}

/** Rotary positions (Su et al., 2021) over adjacent pairs, as in llama.cpp for `llama`. */
function rotate(graph: Graph, value: Value, shape: LanguageModelShape): Value {
  const [, count = 1, time = 1, width = 2] = value.shape;
  const half = width / 2;
  const angles = Array.from(
    { length: time * half },
    (_, i) => Math.floor(i / half) * shape.rope_theta ** (-(i % half) / half),
  );
  const cosine = graph.constant(angles.map(Math.cos), [time, half, 1]);
  const sine = graph.constant(angles.map(Math.sin), [time, half, 1]);
  const pairs = graph.reshape(value, [-1, count, time, half, 2]);
  const [first, second] = [graph.slice(pairs, -1, 0, 1), graph.slice(pairs, -1, 1, 2)];
  const turned = graph.concat(
    [
      graph.sub(graph.mul(first, cosine), graph.mul(second, sine)),
      graph.add(graph.mul(first, sine), graph.mul(second, cosine)),
    ],
    -1,
  );
  return graph.reshape(turned, [-1, count, time, width]);
}
