import { AppError, toAppError } from "@heddle/base/errors";
import { z } from "zod";
import { RequestFaults, validate } from "./validation.ts";

/** The `config` of a job with a training algorithm, by algorithm. Unknown fields are refused. */

const count = (max: number) => z.int().min(1).max(max);
const rate = z.number().positive().max(1e6);
const share = z.number().min(0).max(1);

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

/** What Stable-Baselines3 and CleanRL call what we name otherwise. */
const PPO_ALIASES: Readonly<Record<string, string>> = {
  env: "environment",
  env_id: "environment",
  n_envs: "num_envs",
  n_steps: "num_steps",
  n_epochs: "update_epochs",
  clip_range: "clip_coef",
  normalize_advantage: "norm_adv",
  norm_obs: "normalize_observations",
  norm_reward: "normalize_rewards",
};

const weaveCommon = {
  ...common,
  /** Files or folders as the workers see them. */
  data: z.union([
    z.string().min(1).max(4096),
    z.array(z.string().min(1).max(4096)).min(1).max(1024),
  ]),
  /** Samples of one step of one worker. */
  batch_size: count(1_048_576).default(16),
  /** Steps of each worker. */
  total_steps: count(1e9),
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
    z.strictObject({ type: z.literal("huggingface"), path: z.string().min(1).max(4096) }),
  ]),
);

const languageModelSchema = z.strictObject({
  ...weaveCommon,
  program: z.literal("language_model"),
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
  /** Columns of a CSV file to predict; the last where absent. */
  target: z
    .union([z.string().min(1).max(256), z.array(z.string().min(1).max(256)).min(1).max(4096)])
    .optional(),
  /** Units of each hidden layer; empty for a linear model. */
  hidden: z.array(count(1_048_576)).max(64).default([64]),
};

const weaveSchema = z.discriminatedUnion("program", [
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

/** A fault of a job's config: where, as `config.learning_rate`, and what is wrong. */
export interface TrainingFault {
  readonly param: string;
  readonly detail: string;
}

/**
 * What is wrong with the config of a job of that algorithm with so many tasks, 1 where they are not
 * known yet; nothing for an algorithm that is not built in, whose plugin knows.
 */
export function trainingFaults(algorithm: string, config: unknown, tasks = 1): TrainingFault[] {
  if (algorithm !== "ppo" && algorithm !== "weave") return [];
  try {
    const parsed = parseTrainingConfig(algorithm, config);
    return sizeFaults(parsed, tasks);
  } catch (error) {
    const { cause, message, param = "config" } = toAppError(error);
    if (!(cause instanceof RequestFaults)) return [{ param, detail: message }];
    return cause.faults.map((fault) => ({ param: fault.param, detail: fault.message }));
  }
}

/**
 * The config with defaults filled in and Stable-Baselines3's names resolved. Throws an AppError with
 * the field in `param`, and for an algorithm that is not built in.
 */
export function parseTrainingConfig(algorithm: string, config: unknown): TrainingConfig {
  if (algorithm === "ppo") {
    const { config: ppo } = validate(z.object({ config: ppoSchema }), {
      config: resolveAliases(config),
    });
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
  const isShared = ([name]: readonly [string, unknown]) => name in common;
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

/** Names of Stable-Baselines3 in place of ours; both at once are left to be refused as unknown. */
function resolveAliases(config: unknown): unknown {
  if (typeof config !== "object" || config === null || Array.isArray(config)) return config;
  const given = config as Readonly<Record<string, unknown>>;
  const resolved: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    const own = PPO_ALIASES[name];
    resolved[own !== undefined && given[own] === undefined ? own : name] = value;
  }
  const { batch_size: minibatch, clip_range_vf: valueRange, ...rest } = resolved;
  if (valueRange !== undefined) {
    // One range clips policy and value here; null means that the value's error is not clipped.
    if (valueRange === null) rest["clip_vloss"] ??= false;
    else if (valueRange === (rest["clip_coef"] ?? 0.2)) rest["clip_vloss"] ??= true;
    else rest["clip_range_vf"] = valueRange;
  }
  if (minibatch === undefined) return rest;
  const batch = Number(rest["num_envs"] ?? 4) * Number(rest["num_steps"] ?? 128);
  const minibatches = batch / Number(minibatch);
  // What does not divide stays as it is and is refused under its own name.
  if (Number.isInteger(minibatches) && rest["num_minibatches"] === undefined) {
    return { ...rest, num_minibatches: minibatches };
  }
  return { ...rest, batch_size: minibatch };
}

function sizeFaults(config: TrainingConfig, tasks: number): TrainingFault[] {
  const faults: TrainingFault[] = [];
  const fault = (field: string, detail: string) =>
    faults.push({
      param: `config.${field}`,
      detail: `Invalid value for 'config.${field}': ${detail}.`,
    });
  if (config.staleness > 0 && config.consistency !== "ssp") {
    fault("staleness", `only \`consistency: ssp\` has a staleness, not ${config.consistency}`);
  }
  if (config.straggler_ms !== undefined && config.consistency !== "bsp") {
    fault("straggler_ms", `only \`consistency: bsp\` waits for workers, not ${config.consistency}`);
  }
  if (config.pull_compression === "int8" && config.consistency !== "bsp") {
    fault(
      "pull_compression",
      `int8 is of \`consistency: bsp\` alone, not of ${config.consistency}`,
    );
  }
  if (config.device === "cuda" && config.backend === "reference") {
    fault("device", "the backend reference computes on the CPU alone");
  }
  if (config.algorithm === "ppo") ppoFaults(config, tasks, fault);
  else {
    overlapFaults(config, fault);
    if (config.program === "language_model") languageModelFaults(config, fault);
  }
  return faults;
}

function overlapFaults(
  {
    fragments,
    overlap_steps: overlap,
    local_steps: steps,
  }: LanguageModelTraining | SupervisedTraining,
  fault: TellFault,
): void {
  if (fragments > steps) {
    const why = "fragments are exchanged after different steps of a round";
    fault("fragments", `${why}: use at most local_steps ${steps}, not ${fragments}`);
  }
  if (overlap >= steps) {
    const why = "an exchange ends before the next one of its fragment begins";
    fault("overlap_steps", `${why}: use less than local_steps ${steps}, not ${overlap}`);
  }
}

type TellFault = (field: string, detail: string) => void;

function ppoFaults(config: PpoTraining, tasks: number, fault: TellFault): void {
  const batch = config.num_envs * config.num_steps;
  if (batch % config.num_minibatches !== 0) {
    const sizes = `num_envs * num_steps = ${batch}`;
    fault(
      "num_minibatches",
      `${sizes} must be a multiple of it, and ${config.num_minibatches} is none`,
    );
  }
  if (config.total_timesteps < batch * tasks) {
    const sizes = `num_envs * num_steps * tasks = ${batch * tasks}`;
    fault("total_timesteps", `one update takes ${sizes} steps: give at least so many`);
  }
  if (config.target_kl !== undefined && tasks > 1) {
    const why = "it ends an update's epochs early, which several tasks cannot agree on";
    fault("target_kl", `${why}: leave it out, or use one task instead of ${tasks}`);
  }
  normalizationFaults(config, tasks, fault);
}

function normalizationFaults(config: PpoTraining, tasks: number, fault: TellFault): void {
  const fields = ["normalize_observations", "normalize_rewards"] as const;
  for (const field of fields.filter((name) => config[name])) {
    if (tasks > 1) {
      const why = "each task would have moments of its own, by which policies differ";
      fault(field, `${why}: use one task with more \`num_envs\` instead of ${tasks} tasks`);
    }
    if (config.compression !== "none") {
      const why = "the moments are kept with the parameters and must arrive as they are";
      fault(field, `${why}: use \`compression: none\`, not ${config.compression}`);
    }
  }
}

function languageModelFaults(config: LanguageModelTraining, fault: TellFault): void {
  const { hidden_size, heads, kv_heads } = config;
  if (hidden_size % (2 * heads) !== 0) {
    fault("hidden_size", `${hidden_size} must be an even multiple of heads ${heads}`);
  }
  if (heads % kv_heads !== 0) fault("kv_heads", `heads ${heads} must be a multiple of ${kv_heads}`);
}
