import type { LanguageModelTraining, PpoTraining, SupervisedTraining } from "./training.ts";

/**
 * Bounds on products of a config's fields: they determine a task's memory, which would otherwise
 * fail after placement.
 */

/** Rows of experience (a step of one environment) of one task; some 40 bytes each on CartPole. */
const MAX_ROWS = 2 ** 24;
/** Tokens or rows of one step of one worker. */
const MAX_SAMPLES = 2 ** 24;
/**
 * The largest run between two exchanges, which goes to the backend as a whole: 2 GiB of tokens with
 * their targets. Rows have as many numbers as the data has columns.
 */
const MAX_RUN = { tokens: 2 ** 28, rows: 2 ** 24 };
/** Parameters of a model: 8 GiB as float32, of which a task holds several copies. */
const MAX_PARAMETERS = 2 ** 31;
/**
 * The most elements of one tensor in a step, as a layer's attention or the logits: 8 GiB as
 * float32.
 */
const MAX_TENSOR_ELEMENTS = 2 ** 31;

type AddFault = (field: string, detail: string) => void;
type WeaveTraining = LanguageModelTraining | SupervisedTraining;

/** Faults of a ppo job with this many tasks: experience, policy, and activations. */
export function ppoSizeFaults(config: PpoTraining, tasks: number, fault: AddFault): void {
  batchFaults(config, tasks, fault);
  const { num_envs, num_steps, num_minibatches, hidden } = config;
  // Two networks, each with a square hidden layer.
  const parameters = 2 * hidden * hidden;
  if (parameters > MAX_PARAMETERS) {
    fault("hidden", tooMany("2 * hidden * hidden", parameters, MAX_PARAMETERS, "parameters"));
    return;
  }
  const rows = Math.max(num_envs, Math.ceil((num_envs * num_steps) / num_minibatches));
  if (rows > MAX_ROWS || rows * hidden <= MAX_TENSOR_ELEMENTS) return;
  const sizes = `${rows} rows at a time * hidden`;
  fault("hidden", tooMany(sizes, rows * hidden, MAX_TENSOR_ELEMENTS, "numbers of a layer"));
}

/** A single task computes all epochs of an update in one call, except with `target_kl`. */
function batchFaults(config: PpoTraining, tasks: number, fault: AddFault): void {
  const batch = config.num_envs * config.num_steps;
  if (batch > MAX_ROWS) {
    const sizes = `num_envs * num_steps = ${batch}`;
    fault("num_steps", `${sizes}, and one task holds ${MAX_ROWS} rows at most`);
    return;
  }
  const rows = batch * config.update_epochs;
  if (tasks > 1 || config.target_kl !== undefined || rows <= MAX_ROWS) return;
  const sizes = `num_envs * num_steps * update_epochs = ${rows}`;
  fault("update_epochs", `${sizes}, and one task takes ${MAX_ROWS} rows at most in an update`);
}

/**
 * Faults of a weave job: the data of a step and of a run, the model, and a step's largest tensors.
 */
export function weaveSizeFaults(config: WeaveTraining, fault: AddFault): void {
  sampleFaults(config, fault);
  if (config.program === "language_model") languageModelFaults(config, fault);
  else layerFaults(config, fault);
}

function sampleFaults(config: WeaveTraining, fault: AddFault): void {
  const { batch_size, total_steps } = config;
  const isText = config.program === "language_model";
  const length = isText ? config.context_length : 1;
  const what = isText ? "tokens" : "rows";
  const sizes = isText ? "batch_size * context_length" : "batch_size";
  const step = batch_size * length;
  if (step > MAX_SAMPLES) {
    const of = `a step of one worker has ${MAX_SAMPLES} ${what} at most`;
    fault("batch_size", `${sizes} = ${step}, and ${of}`);
    return;
  }
  const run = step * Math.min(config.local_steps, total_steps);
  if (run <= MAX_RUN[what]) return;
  const of = `the steps between two exchanges have ${MAX_RUN[what]} ${what} at most`;
  fault("local_steps", `${sizes} * local_steps = ${run}, and ${of}`);
}

function languageModelFaults(config: LanguageModelTraining, fault: AddFault): void {
  const { batch_size, context_length, hidden_size, heads, kv_heads } = config;
  const { layers, intermediate_size, tokenizer } = config;
  // Attention has four matrices, the feed-forward network three; norms are negligible.
  const attention = hidden_size * hidden_size * (2 + (2 * kv_heads) / heads);
  const layer = attention + 3 * hidden_size * intermediate_size;
  // Only the workers know a given file's vocabulary.
  const vocabulary = { byte: 256, bpe: "vocab_size" in tokenizer ? tokenizer.vocab_size : 0 };
  const tokens = tokenizer.type === "huggingface" ? 0 : vocabulary[tokenizer.type];
  const parameters = layers * layer + 2 * tokens * hidden_size;
  if (parameters > MAX_PARAMETERS) {
    const sizes = "hidden_size, intermediate_size, layers and tokens";
    const count = Math.round(parameters);
    fault("hidden_size", tooMany(sizes, count, MAX_PARAMETERS, "parameters", " make"));
  }
  const scores = batch_size * heads * context_length ** 2;
  if (scores > MAX_TENSOR_ELEMENTS) {
    const sizes = "batch_size * heads * context_length^2";
    fault("context_length", tooMany(sizes, scores, MAX_TENSOR_ELEMENTS, "scores of a layer"));
  }
  const width = Math.max(tokens, hidden_size, intermediate_size);
  const activations = batch_size * context_length * width;
  if (activations <= MAX_TENSOR_ELEMENTS) return;
  const sizes = `batch_size * context_length * ${width}, its widest layer,`;
  const what = "numbers of one tensor";
  fault("batch_size", tooMany(sizes, activations, MAX_TENSOR_ELEMENTS, what));
}

/** Only the workers know features and outputs. */
function layerFaults({ hidden, batch_size }: SupervisedTraining, fault: AddFault): void {
  const weights = hidden.slice(1).map((units, i) => units * (hidden[i] ?? 0));
  const parameters = weights.reduce((sum, count) => sum + count, 0);
  if (parameters > MAX_PARAMETERS) {
    fault("hidden", tooMany("its layers", parameters, MAX_PARAMETERS, "parameters", " make"));
  }
  const activations = batch_size * Math.max(0, ...hidden);
  if (activations <= MAX_TENSOR_ELEMENTS) return;
  const sizes = "batch_size * the widest of hidden";
  fault("batch_size", tooMany(sizes, activations, MAX_TENSOR_ELEMENTS, "numbers of one tensor"));
}

function tooMany(sizes: string, count: number, max: number, what: string, is = " ="): string {
  return `${sizes}${is} ${count} ${what}, and a task holds ${max} at most`;
}
