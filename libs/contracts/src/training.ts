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
  /** Seeds all random draws of the job. */
  seed: z.int().min(0).max(0xffff_ffff).default(1),
  /** Number of shards of the parameters. */
  parameter_servers: count(1024).default(1),
  consistency: z.enum(["bsp", "ssp", "asp"]).optional(),
  /** Of ssp: updates by which a worker may be ahead of the slowest. */
  staleness: z.int().min(0).max(1_000_000).default(0),
  /** Of bsp: an update continues without workers later than this after its first part. */
  straggler_ms: z.int().min(1).max(3_600_000).optional(),
  compression: z.enum(["none", "bf16", "int8", "topk"]).default("none"),
  /**
   * Of bsp: the format of pulled parameters. `int8` sends changes; weave uses it by default if
   * `compression` is int8.
   */
  pull_compression: z.enum(["none", "int8"]).optional(),
  backend: z.enum(["onnx", "reference", "tfjs"]).default("onnx"),
  device: z.enum(["auto", "cpu", "cuda"]).default("auto"),
};

const commonSchema = z.strictObject(common);

/** Hyperparameters of PPO under CleanRL's names, with CleanRL's defaults. */
const ppoSchema = z.strictObject({
  ...common,
  environment: z.string().min(1).max(128).default("CartPole-v1"),
  /** The job succeeds once the mean return of the last 100 episodes reaches it. */
  target_return: z.number().optional(),
  /** Steps of all environments of all workers together. */
  total_timesteps: count(1e12).default(500_000),
  learning_rate: rate.default(2.5e-4),
  /** Environments of one worker. */
  num_envs: count(65_536).default(4),
  num_steps: count(1_048_576).default(128),
  anneal_lr: z.boolean().default(true),
  gamma: share.default(0.99),
  gae_lambda: share.default(0.95),
  /**
   * A truncated episode, as at its step limit, is worth the critic's value of its last observation,
   * as in Stable-Baselines3; 0 if false, as in CleanRL.
   */
  bootstrap_truncated: z.boolean().default(true),
  num_minibatches: count(65_536).default(4),
  update_epochs: count(1_000).default(4),
  norm_adv: z.boolean().default(true),
  clip_coef: z.number().positive().max(1e6).default(0.2),
  clip_vloss: z.boolean().default(true),
  ent_coef: z.number().min(0).max(1e6).default(0.01),
  vf_coef: z.number().min(0).max(1e6).default(0.5),
  max_grad_norm: rate.default(0.5),
  target_kl: rate.optional(),
  /** To mean 0 and deviation 1 of past values, clipped at 10. */
  normalize_observations: z.boolean().default(false),
  /** Divided by the deviation of the discounted return so far, clipped at 10. */
  normalize_rewards: z.boolean().default(false),
  /** Units of each hidden layer. */
  hidden: count(65_536).default(64),
});

const weaveCommon = {
  ...common,
  /** Samples of one step of one worker. */
  batch_size: count(1_048_576).default(16),
  /** Steps of each worker. */
  total_steps: count(1e9).default(300),
  /** H: steps between two exchanges with the parameter servers. */
  local_steps: count(65_536).default(1),
  /** F: parts of the model that are exchanged separately, spread over the local steps. */
  fragments: count(32).default(1),
  /** tau: local steps computed during an exchange. */
  overlap_steps: z.int().min(0).max(65_535).default(0),
  /**
   * alpha: a worker's own share when it merges pulled parameters, below 1. By default 0.5 with
   * overlap, otherwise 0.
   */
  mixing_factor: z.number().min(0).lt(1).optional(),
  learning_rate: rate.default(1e-3),
  optimizer: z.enum(["sgd", "momentum", "nesterov", "adam", "adamw"]).default("adamw"),
  /** Of `momentum` and `nesterov`. */
  momentum: share.default(0.9),
  /** Of `adamw`. */
  weight_decay: z.number().min(0).max(1e3).default(0.01),
  warmup_steps: z.int().min(0).max(1e9).default(0),
  max_grad_norm: rate.default(1),
  /**
   * Of bsp: the final model averages the parameters after each exchange over these steps; 0 for
   * none. By default, with local steps, a thirty-second of all steps.
   */
  average_steps: z.int().min(0).max(1e9).optional(),
  /**
   * Initial steps with an exchange every `warm_start_local_steps`. By default, with local steps, a
   * thirty-second of all steps.
   */
  warm_start_steps: z.int().min(0).max(1e9).optional(),
  /** By default an eighth of `local_steps`. */
  warm_start_local_steps: count(65_536).optional(),
  /** By default 0.8 with local steps, otherwise 1. */
  outer_learning_rate: rate.optional(),
  /**
   * By default 0.4 with local steps, otherwise 0. DiLoCo's 0.9 is for thousands of rounds: its
   * memory of ten rounds moves parameters seven times as far as workers went.
   */
  outer_momentum: z.number().min(0).max(0.9999).optional(),
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
      /** Maximum tokens: bytes, control tokens and merges. */
      vocab_size: z.int().min(512).max(131_072).default(4096),
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
  /** Text; by default one that the trainer generates (`sample-text.ts`). */
  data: dataSchema.default([]),
  tokenizer: tokenizerSchema.default({ type: "byte" }),
  context_length: count(131_072).default(128),
  hidden_size: count(65_536).default(128),
  layers: count(1_024).default(2),
  heads: count(1_024).default(4),
  /** Key and value heads; by default as many as `heads`. */
  kv_heads: count(1_024).optional(),
  /** By default about 8/3 of `hidden_size`. */
  intermediate_size: count(1_048_576).optional(),
  rope_theta: z.number().min(1).max(1e9).default(10_000),
  norm_epsilon: z.number().positive().max(1).default(1e-5),
  /** The model id under which it is served once the job has succeeded. */
  register_as: z
    .string()
    .regex(/^[A-Za-z0-9][\w.-]{0,127}$/, "expected a model id of letters, digits, `.`, `_`, `-`")
    .optional(),
  /** Replaces a model of that id from an earlier job. */
  replace_model: z.boolean().default(false),
});

const supervised = {
  ...weaveCommon,
  data: dataSchema,
  /** Columns of a CSV file to predict; by default the last. */
  target: z
    .union([z.string().min(1).max(256), z.array(z.string().min(1).max(256)).min(1).max(4096)])
    .optional(),
  /** Units of each hidden layer; empty for a linear model. */
  hidden: z.array(count(1_048_576)).max(64).default([64]),
};

const weavePrograms = z.discriminatedUnion("program", [
  languageModelSchema,
  z.strictObject({
    ...supervised,
    program: z.literal("regression"),
    /** Numbers to predict: the last columns of npy files. */
    outputs: count(4_096).optional(),
  }),
  z.strictObject({
    ...supervised,
    program: z.literal("classification"),
    /** Classes, from 0; by default one more than the greatest in the data. */
    classes: z.int().min(2).max(1_048_576).optional(),
  }),
]);

/** A config without a program trains a language model. */
const weaveSchema = z.preprocess(
  (given) =>
    typeof given === "object" && given !== null && !Object.hasOwn(given, "program")
      ? { program: "language_model", ...given }
      : given,
  weavePrograms,
);

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
