import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { resolvePpoAliases } from "./ppo-aliases.ts";
import { validate } from "./validation.ts";

/** The `config` of a training job, by algorithm. Unknown fields are refused. */

const count = (max: number) => z.int().min(1).max(max);
const rate = z.number().positive().max(1e6);
const share = z.number().min(0).max(1);
/** A path on the workers, without NUL. */
const path = z
  .string()
  .min(1)
  .max(4096)
  .refine((given) => !given.includes("\0"), "expected a path without NUL characters");

const common = {
  seed: z.int().min(0).max(0xffff_ffff).default(1).describe("Seeds all random draws of the job."),
  parameter_servers: count(1024).default(1).describe("Number of shards of the parameters."),
  consistency: z
    .enum(["bsp", "ssp", "asp"])
    .optional()
    .describe("In step, at most `staleness` apart, or at once; by default bsp."),
  staleness: z
    .int()
    .min(0)
    .max(1_000_000)
    .default(0)
    .describe("Of ssp: updates by which a worker may be ahead of the slowest."),
  straggler_ms: z
    .int()
    .min(1)
    .max(3_600_000)
    .optional()
    .describe("Of bsp: an update continues without workers later than this after its first part."),
  compression: z
    .enum(["none", "bf16", "int8", "topk"])
    .default("none")
    .describe("The format of pushed parts; what it loses is added to the next part."),
  pull_compression: z
    .enum(["none", "int8"])
    .optional()
    .describe("Of bsp: the format of pulls. weave's default follows `compression`."),
  backend: z
    .enum(["onnx", "reference", "tfjs"])
    .default("onnx")
    .describe("What computes; `tfjs` needs a package of TensorFlow.js on the node."),
  device: z
    .enum(["auto", "cpu", "cuda"])
    .default("auto")
    .describe("`auto` takes CUDA if the task holds a real GPU, otherwise the CPU."),
};

const commonSchema = z.strictObject(common);

/** Hyperparameters of PPO under CleanRL's names, with CleanRL's defaults. */
const ppoSchema = z.strictObject({
  ...common,
  environment: z
    .string()
    .min(1)
    .max(128)
    .default("CartPole-v1")
    .describe("CartPole-v1, Acrobot-v1, MountainCar-v0, Pendulum-v1, or one of a plugin."),
  target_return: z
    .number()
    .optional()
    .describe("The job succeeds once the mean return of the last 100 episodes reaches it."),
  total_timesteps: count(1e12)
    .default(500_000)
    .describe("Steps of all environments of all workers together."),
  learning_rate: rate.default(2.5e-4).describe("Of Adam."),
  num_envs: count(65_536).default(4).describe("Environments of one worker."),
  num_steps: count(1_048_576)
    .default(128)
    .describe("Steps of each environment between two updates."),
  anneal_lr: z.boolean().default(true).describe("The rate falls linearly to 0."),
  gamma: share.default(0.99).describe("Discount of rewards."),
  gae_lambda: share.default(0.95).describe("Of the generalized advantage estimate."),
  bootstrap_truncated: z
    .boolean()
    .default(true)
    .describe("The critic values the last observation of a truncated episode; false: 0."),
  num_minibatches: count(65_536).default(4).describe("Parts of an update."),
  update_epochs: count(1_000).default(4).describe("Passes over the samples of an update."),
  norm_adv: z.boolean().default(true).describe("Normalizes advantages in each minibatch."),
  clip_coef: z
    .number()
    .positive()
    .max(1e6)
    .default(0.2)
    .describe("Bound of the ratio of policies."),
  clip_vloss: z.boolean().default(true).describe("Clips the value loss too."),
  ent_coef: z.number().min(0).max(1e6).default(0.01).describe("Weight of the entropy."),
  vf_coef: z.number().min(0).max(1e6).default(0.5).describe("Weight of the value loss."),
  max_grad_norm: rate.default(0.5).describe("Gradients are clipped at this norm."),
  target_kl: rate
    .optional()
    .describe("An epoch whose last minibatch moved the policy further ends the update."),
  normalize_observations: z
    .boolean()
    .default(false)
    .describe("To mean 0 and deviation 1 of past values, clipped at 10."),
  normalize_rewards: z
    .boolean()
    .default(false)
    .describe("Divided by the deviation of the discounted return so far, clipped at 10."),
  hidden: count(65_536).default(64).describe("Units of each hidden layer."),
});

const weaveCommon = {
  ...common,
  batch_size: count(1_048_576).default(16).describe("Samples of one step of one worker."),
  total_steps: count(1e9).default(300).describe("Steps of each worker."),
  local_steps: count(65_536)
    .default(1)
    .describe("H: steps between two exchanges with the parameter servers."),
  fragments: count(32)
    .default(1)
    .describe("F: parts of the model that are exchanged separately, spread over the local steps."),
  overlap_steps: z
    .int()
    .min(0)
    .max(65_535)
    .default(0)
    .describe("tau: local steps computed during an exchange."),
  mixing_factor: z
    .number()
    .min(0)
    .lt(1)
    .optional()
    .describe("alpha: a worker's own share in a merge; 0.5 with overlap, otherwise 0."),
  learning_rate: rate.default(1e-3).describe("Of the local steps."),
  optimizer: z
    .enum(["sgd", "momentum", "nesterov", "adam", "adamw"])
    .default("adamw")
    .describe("Of the local steps."),
  momentum: share.default(0.9).describe("Of `momentum` and `nesterov`."),
  weight_decay: z.number().min(0).max(1e3).default(0.01).describe("Of `adamw`."),
  warmup_steps: z
    .int()
    .min(0)
    .max(1e9)
    .default(0)
    .describe("Steps over which the rate rises from 0."),
  max_grad_norm: rate.default(1).describe("Each worker clips its gradients at this norm."),
  average_steps: z
    .int()
    .min(0)
    .max(1e9)
    .optional()
    .describe("Of bsp: the final model is the average over these steps; 1/32 of all."),
  warm_start_steps: z
    .int()
    .min(0)
    .max(1e9)
    .optional()
    .describe("First steps, with shorter rounds; 1/32 of all."),
  warm_start_local_steps: count(65_536)
    .optional()
    .describe("By default an eighth of `local_steps`."),
  outer_learning_rate: rate.optional().describe("By default 0.8 with local steps, otherwise 1."),
  outer_momentum: z
    .number()
    .min(0)
    .max(0.9999)
    .optional()
    .describe("By default 0.4 with local steps, otherwise 0."),
};

/** A tokenizer's type alone means that type with its defaults. */
const tokenizerSchema = z.preprocess(
  (given) => (typeof given === "string" ? { type: given } : given),
  z.discriminatedUnion("type", [
    /** Each byte is a token. */
    z.strictObject({ type: z.literal("byte") }),
    /** Byte-pair encoding learned from the data. */
    z.strictObject({
      type: z.literal("bpe"),
      vocab_size: z
        .int()
        .min(512)
        .max(131_072)
        .default(4096)
        .describe("Maximum tokens: bytes, control tokens and merges."),
    }),
    /** Byte-level byte-pair encoding from a `tokenizer.json` on the workers. */
    z.strictObject({ type: z.literal("huggingface"), path }),
  ]),
);

/** Files or folders on the workers. */
const dataSchema = z.union([path, z.array(path).min(1).max(1024)]);

const languageModelSchema = z.strictObject({
  ...weaveCommon,
  program: z.literal("language_model"),
  data: dataSchema.default([]).describe("Text; by default one that the trainer generates."),
  tokenizer: tokenizerSchema
    .default({ type: "byte" })
    .describe(
      "`byte`, `{type: bpe, vocab_size}` learned from the data, or `{type: huggingface, path}`.",
    ),
  context_length: count(131_072).default(128).describe("Tokens of a sample."),
  hidden_size: count(65_536).default(128).describe("Width of the model."),
  layers: count(1_024).default(2).describe("Blocks of the model."),
  heads: count(1_024).default(4).describe("Attention heads."),
  kv_heads: count(1_024).optional().describe("Key and value heads; by default as many as `heads`."),
  intermediate_size: count(1_048_576).optional().describe("By default about 8/3 of `hidden_size`."),
  rope_theta: z.number().min(1).max(1e9).default(10_000).describe("Base of the rotary embedding."),
  norm_epsilon: z.number().positive().max(1).default(1e-5).describe("Of RMSNorm."),
  register_as: z
    .string()
    .regex(/^[A-Za-z0-9][\w.-]{0,127}$/, "expected a model id of letters, digits, `.`, `_`, `-`")
    .optional()
    .describe("The model id under which it is served once the job has succeeded."),
  replace_model: z
    .boolean()
    .default(false)
    .describe("Replaces a model of that id from an earlier job."),
});

const supervised = {
  ...weaveCommon,
  data: dataSchema.describe("CSV with a header, or npy, on the workers."),
  target: z
    .union([z.string().min(1).max(256), z.array(z.string().min(1).max(256)).min(1).max(4096)])
    .optional()
    .describe("Columns of a CSV file to predict; by default the last."),
  hidden: z
    .array(count(1_048_576))
    .max(64)
    .default([64])
    .describe("Units of each hidden layer; empty for a linear model."),
};

const regressionSchema = z.strictObject({
  ...supervised,
  program: z.literal("regression"),
  outputs: count(4_096).optional().describe("Numbers to predict: the last columns of npy files."),
});

const classificationSchema = z.strictObject({
  ...supervised,
  program: z.literal("classification"),
  classes: z
    .int()
    .min(2)
    .max(1_048_576)
    .optional()
    .describe("Classes, from 0; by default one more than the greatest in the data."),
});

const weavePrograms = z.discriminatedUnion("program", [
  languageModelSchema,
  regressionSchema,
  classificationSchema,
]);

/** A config without a program trains a language model. */
const weaveSchema = z.preprocess(
  (given) =>
    typeof given === "object" && given !== null && !Object.hasOwn(given, "program")
      ? { program: "language_model", ...given }
      : given,
  weavePrograms,
);

/** The fields of each config, for the reference. */
export const TRAINING_CONFIGS = {
  common: commonSchema,
  ppo: ppoSchema,
  weave: z.strictObject(weaveCommon),
  language_model: languageModelSchema,
  regression: regressionSchema,
  classification: classificationSchema,
};

type Consistency = "bsp" | "ssp" | "asp";

/** A complete `ppo` config. */
export interface PpoTraining extends z.output<typeof ppoSchema> {
  readonly algorithm: "ppo";
  readonly consistency: Consistency;
}

type Woven<Program> = Omit<Program, "data"> & {
  readonly algorithm: "weave";
  readonly consistency: Consistency;
  readonly data: readonly string[];
  readonly outer_learning_rate: number;
  readonly outer_momentum: number;
  readonly mixing_factor: number;
  readonly average_steps: number;
  readonly warm_start_steps: number;
  readonly warm_start_local_steps: number;
};
type Weave = z.output<typeof weaveSchema>;

/** A complete `weave` config for a language model. */
export type LanguageModelTraining = Woven<z.output<typeof languageModelSchema>> & {
  readonly kv_heads: number;
  readonly intermediate_size: number;
};
/** A complete `weave` config for a table. */
export type SupervisedTraining =
  | Woven<Extract<Weave, { program: "regression" }>>
  | Woven<Extract<Weave, { program: "classification" }>>;

/** A complete training config. */
export type TrainingConfig = PpoTraining | LanguageModelTraining | SupervisedTraining;

/** The config of a plugin's algorithm: the common fields, and its own. */
export type PluginTraining = z.output<typeof commonSchema> & {
  readonly algorithm: string;
  readonly consistency: Consistency;
  /** For the plugin to check. */
  readonly own: Readonly<Record<string, unknown>>;
};

/**
 * The config with defaults, and with Stable-Baselines3's names resolved. Throws an AppError with
 * the field in `param`, and for an algorithm that is not built in.
 */
export function parseTrainingConfig(algorithm: string, config: unknown): TrainingConfig {
  if (algorithm === "ppo") {
    const given = { config: resolvePpoAliases(config) };
    const { config: ppo } = validate(z.object({ config: ppoSchema }), given);
    return { ...ppo, algorithm, consistency: consistencyOf(ppo) };
  }
  if (algorithm === "weave") {
    return completeWeave(validate(z.object({ config: weaveSchema }), { config }).config);
  }
  throw new AppError("invalid_value", `there is no built-in algorithm "${algorithm}"`, {
    param: "algorithm",
  });
}

/** The same for an algorithm of a plugin, which checks the fields in `own`. */
export function parsePluginTraining(algorithm: string, config: unknown): PluginTraining {
  const isShared = ([name]: readonly [string, unknown]) => Object.hasOwn(common, name);
  const given = Object.entries(validate(z.record(z.string(), z.unknown()), config ?? {}));
  const { config: shared } = validate(z.object({ config: commonSchema }), {
    config: Object.fromEntries(given.filter(isShared)),
  });
  const own = Object.fromEntries(given.filter((entry) => !isShared(entry)));
  return { ...shared, algorithm, consistency: consistencyOf(shared), own };
}

/**
 * The environment in a `ppo` job's config, with its field; undefined for other algorithms, and for
 * the default.
 */
export function environmentOf(
  algorithm: string,
  config: Readonly<Record<string, unknown>>,
): { readonly field: string; readonly name: string } | undefined {
  if (algorithm !== "ppo") return undefined;
  for (const field of ["environment", "env", "env_id"]) {
    const name = config[field];
    if (typeof name === "string") return { field, name };
  }
  return undefined;
}

function completeWeave(weave: Weave): LanguageModelTraining | SupervisedTraining {
  const isLocal = weave.local_steps > 1;
  const completed = {
    algorithm: "weave" as const,
    consistency: consistencyOf(weave),
    data: [weave.data].flat(),
    outer_learning_rate: weave.outer_learning_rate ?? (isLocal ? 0.8 : 1),
    outer_momentum: weave.outer_momentum ?? (isLocal ? 0.4 : 0),
    mixing_factor: weave.mixing_factor ?? (weave.overlap_steps > 0 ? 0.5 : 0),
    average_steps:
      weave.average_steps ?? (averages(weave) ? Math.floor(weave.total_steps / 32) : 0),
    ...warmStart(weave),
    pull_compression: weave.pull_compression ?? (shrinksPulls(weave) ? "int8" : "none"),
  };
  if (weave.program !== "language_model") return { ...weave, ...completed };
  return {
    ...weave,
    ...completed,
    kv_heads: weave.kv_heads ?? weave.heads,
    // LLaMA's ratio, in whole multiples of 32 so that rows are aligned.
    intermediate_size:
      weave.intermediate_size ?? Math.max(32, Math.round((weave.hidden_size * 8) / 3 / 32) * 32),
  };
}

/** Whole rounds of the usual length, so that the steps of all rounds add up. */
function warmStart({ local_steps, total_steps, ...given }: Weave) {
  const rounds = local_steps > 1 ? Math.floor(total_steps / 32 / local_steps) : 0;
  return {
    warm_start_steps: given.warm_start_steps ?? rounds * local_steps,
    warm_start_local_steps: given.warm_start_local_steps ?? Math.max(1, local_steps >> 3),
  };
}

/** Under ssp and asp other workers' last parts arrive after a worker's own last pull. */
function averages(weave: Weave): boolean {
  return weave.local_steps > 1 && consistencyOf(weave) === "bsp";
}

function shrinksPulls(weave: Weave): boolean {
  return weave.compression === "int8" && consistencyOf(weave) === "bsp";
}

/** A staleness bound alone selects ssp. */
function consistencyOf(config: {
  readonly consistency?: Consistency | undefined;
  readonly staleness: number;
}): Consistency {
  return config.consistency ?? (config.staleness > 0 ? "ssp" : "bsp");
}
