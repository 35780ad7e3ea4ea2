import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { resolvePpoAliases } from "./ppo-aliases.ts";
import { validate } from "./validation.ts";

/** The `config` of a job with a training algorithm, by algorithm. Unknown fields are refused. */

const count = (max: number) => z.int().min(1).max(max);
const rate = z.number().positive().max(1e6);
const share = z.number().min(0).max(1);
/** A path as the workers see it; the system takes none with NUL in it. */
const path = z
  .string()
  .min(1)
  .max(4096)
  .refine((given) => !given.includes("\0"), "expected a path without NUL characters");

const common = {
  /** Every draw of the job follows from it. */
  seed: z.int().min(0).max(0xffff_ffff).default(1),
  /** Shards that the parameters are cut into. */
  parameter_servers: count(1024).default(1),
  consistency: z.enum(["bsp", "ssp", "asp"]).optional(),
  /** Of ssp: updates that a worker may be ahead of the slowest. */
  staleness: z.int().min(0).max(1_000_000).default(0),
  /** Of bsp: an update goes on without who is later than this after its first part. */
  straggler_ms: z.int().min(1).max(3_600_000).optional(),
  compression: z.enum(["none", "bf16", "int8", "topk"]).default("none"),
  /**
   * Of bsp: how parameters come back. `int8` sends what has changed; weave takes it by itself where
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
  /** Ends the job as succeeded once the mean return of the last 100 episodes reaches it. */
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
   * An episode that is cut off, as at its limit of steps, is worth what the critic expects of its last
   * observation, as in Stable-Baselines3; 0 where false, as in CleanRL.
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
  /** To mean 0 and deviation 1 by what was seen so far, cut at 10. */
  normalize_observations: z.boolean().default(false),
  /** Divided by the deviation of the discounted return so far, cut at 10. */
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
  /** F: parts of the model that are exchanged one by one, spread over the local steps. */
  fragments: count(32).default(1),
  /** tau: local steps that are computed while an exchange is under way. */
  overlap_steps: z.int().min(0).max(65_535).default(0),
  /**
   * alpha: how much of its own a worker keeps of what comes back, below 1. Where absent 0.5 with
   * overlap, else 0.
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
   * Of bsp: steps over which the model that is left is an average of those after each exchange; 0
   * for the last as it is. Where absent, with local steps, a thirty-second of all steps.
   */
  average_steps: z.int().min(0).max(1e9).optional(),
  /**
   * The first so many steps have an exchange every `warm_start_local_steps`. Where absent, with local
   * steps, a thirty-second of all steps.
   */
  warm_start_steps: z.int().min(0).max(1e9).optional(),
  /** An eighth of `local_steps` where absent. */
  warm_start_local_steps: count(65_536).optional(),
  /** 0.8 where there are local steps, else 1. */
  outer_learning_rate: rate.optional(),
  /**
   * 0.4 where there are local steps, else 0. DiLoCo's 0.9 is for thousands of rounds: what it keeps of
   * the last ten takes parameters seven times as far as workers went.
   */
  outer_momentum: z.number().min(0).max(0.9999).optional(),
};

/** A tokenizer's type alone stands for one of that type with its defaults. */
const tokenizerSchema = z.preprocess(
  (given) => (typeof given === "string" ? { type: given } : given),
  z.discriminatedUnion("type", [
    /** Each byte is a token. */
    z.strictObject({ type: z.literal("byte") }),
    /** Byte-pair encoding that is learned from the data. */
    z.strictObject({
      type: z.literal("bpe"),
      /** Tokens at most: bytes, control tokens and what is merged. */
      vocab_size: z.int().min(512).max(131_072).default(4096),
    }),
    /** Byte-level byte-pair encoding from a `tokenizer.json` as the workers see it. */
    z.strictObject({ type: z.literal("huggingface"), path }),
  ]),
);

/** Files or folders as the workers see them. */
const dataSchema = z.union([path, z.array(path).min(1).max(1024)]);

const languageModelSchema = z.strictObject({
  ...weaveCommon,
  program: z.literal("language_model"),
  /** Text; where absent a text that the trainer makes itself (`sample-text.ts`). */
  data: dataSchema.default([]),
  tokenizer: tokenizerSchema.default({ type: "byte" }),
  context_length: count(131_072).default(128),
  hidden_size: count(65_536).default(128),
  layers: count(1_024).default(2),
  heads: count(1_024).default(4),
  /** Key and value heads; as many as `heads` where absent. */
  kv_heads: count(1_024).optional(),
  /** About 8/3 of `hidden_size` where absent. */
  intermediate_size: count(1_048_576).optional(),
  rope_theta: z.number().min(1).max(1e9).default(10_000),
  norm_epsilon: z.number().positive().max(1).default(1e-5),
  /** The model id under which it is served when the job has succeeded. */
  register_as: z
    .string()
    .regex(/^[A-Za-z0-9][\w.-]{0,127}$/, "expected a model id of letters, digits, `.`, `_`, `-`")
    .optional(),
  /** A model of that id that an earlier job has trained gives way to this job's. */
  replace_model: z.boolean().default(false),
});

const supervised = {
  ...weaveCommon,
  data: dataSchema,
  /** Columns of a CSV file to predict; the last where absent. */
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
    /** Numbers to predict; of npy files the last so many columns. */
    outputs: count(4_096).optional(),
  }),
  z.strictObject({
    ...supervised,
    program: z.literal("classification"),
    /** Classes, from 0; one more than the greatest in the data where absent. */
    classes: z.int().min(2).max(1_048_576).optional(),
  }),
]);

/** A config that names no program trains a language model. */
const weaveSchema = z.preprocess(
  (given) =>
    typeof given === "object" && given !== null && !Object.hasOwn(given, "program")
      ? { program: "language_model", ...given }
      : given,
  weavePrograms,
);

type Consistency = "bsp" | "ssp" | "asp";

/** What a `ppo` job is to do, complete. */
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

/** What a `weave` job with a language model is to do, complete. */
export type LanguageModelTraining = Woven<z.output<typeof languageModelSchema>> & {
  readonly kv_heads: number;
  readonly intermediate_size: number;
};
/** What a `weave` job on a table is to do, complete. */
export type SupervisedTraining =
  | Woven<Extract<Weave, { program: "regression" }>>
  | Woven<Extract<Weave, { program: "classification" }>>;

/** What a training job is to do, defaults filled in. */
export type TrainingConfig = PpoTraining | LanguageModelTraining | SupervisedTraining;

/** What a job of a plugin's algorithm is to do: what all jobs have, and the algorithm's own fields. */
export type PluginTraining = z.output<typeof commonSchema> & {
  readonly algorithm: string;
  readonly consistency: Consistency;
  /** For the plugin to check. */
  readonly own: Readonly<Record<string, unknown>>;
};

/**
 * The config with defaults filled in and Stable-Baselines3's names resolved. Throws an AppError with
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

/** The same for an algorithm of a plugin, which alone knows the fields that are left in `own`. */
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
 * The environment that a `ppo` job's config names, and under which name; undefined for other
 * algorithms, and where the default is meant.
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

/** Under ssp and asp the last parts of others come after a worker's own last pull. */
function averages(weave: Weave): boolean {
  return weave.local_steps > 1 && consistencyOf(weave) === "bsp";
}

function shrinksPulls(weave: Weave): boolean {
  return weave.compression === "int8" && consistencyOf(weave) === "bsp";
}

/** A staleness bound by itself asks for ssp. */
function consistencyOf(config: {
  readonly consistency?: Consistency | undefined;
  readonly staleness: number;
}): Consistency {
  return config.consistency ?? (config.staleness > 0 ? "ssp" : "bsp");
}
