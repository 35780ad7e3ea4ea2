import { toAppError } from "@heddle/base/errors";
import {
  type LanguageModelTraining,
  type PluginTraining,
  type PpoTraining,
  parsePluginTraining,
  parseTrainingConfig,
  type SupervisedTraining,
  type TrainingConfig,
} from "./training.ts";
import { ppoSizeFaults, weaveSizeFaults } from "./training-size-faults.ts";
import { RequestFaults } from "./validation.ts";

/** A fault of a job's config: its path, as `config.learning_rate`, and a message. */
export interface TrainingFault {
  readonly param: string;
  readonly detail: string;
}

/**
 * The faults of a config. `tasks` is 1 if unknown; GPUs per task may be unknown. For a plugin's
 * algorithm only the common fields are checked; its plugin checks the others.
 */
export function trainingFaults(
  algorithm: string,
  config: unknown,
  tasks = 1,
  gpus?: number,
): TrainingFault[] {
  const faults: TrainingFault[] = [];
  const addFault: AddFault = (field, detail) => {
    const param = `config.${field}`;
    faults.push({ param, detail: `Invalid value for '${param}': ${detail}.` });
  };
  try {
    if (algorithm === "ppo" || algorithm === "weave") {
      const parsed = parseTrainingConfig(algorithm, config);
      builtInFaults(parsed, config, tasks, addFault);
      gpuFaults(parsed, gpus, addFault);
    } else {
      const parsed = parsePluginTraining(algorithm, config);
      commonFaults(parsed, addFault);
      gpuFaults(parsed, gpus, addFault);
    }
    return faults;
  } catch (error) {
    const { cause, message, param = "config" } = toAppError(error);
    if (!(cause instanceof RequestFaults)) return [{ param, detail: message }];
    return cause.faults.map((fault) => ({ param: fault.param, detail: fault.message }));
  }
}

type AddFault = (field: string, detail: string) => void;

/** Compares a config with the given fields, which distinguishes defaults from explicit values. */
function builtInFaults(
  config: TrainingConfig,
  given: unknown,
  tasks: number,
  fault: AddFault,
): void {
  commonFaults(config, fault);
  if (config.algorithm === "ppo") {
    ppoFaults(config, tasks, fault);
    ppoSizeFaults(config, tasks, fault);
    normalizationFaults(config, tasks, fault);
    return;
  }
  overlapFaults(config, fault);
  weaveSizeFaults(config, fault);
  idleFaults(config, new Set(Object.keys(given ?? {})), fault);
  stepFaults(config, fault);
  if (config.program === "language_model") languageModelFaults(config, fault);
  else targetFaults(config, fault);
}

function commonFaults(config: TrainingConfig | PluginTraining, fault: AddFault): void {
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
}

function gpuFaults(
  { backend, device }: TrainingConfig | PluginTraining,
  gpus: number | undefined,
  fault: AddFault,
): void {
  if (device !== "cuda" || backend === "reference" || gpus !== 0) return;
  const why = "cuda needs a GPU, and the job asks for none";
  fault("device", `${why}: ask for one with \`resources.gpu_count\`, or use auto or cpu`);
}

/** Steps that would never be reached. */
function stepFaults(config: LanguageModelTraining | SupervisedTraining, fault: AddFault): void {
  const { total_steps: total } = config;
  const fields = ["local_steps", "warmup_steps", "average_steps", "warm_start_steps"] as const;
  for (const field of fields.filter((name) => config[name] > total)) {
    const use = `use at most total_steps ${total}, not ${config[field]}`;
    fault(field, `the job ends before that many steps are done: ${use}`);
  }
}

function overlapFaults(
  {
    fragments,
    overlap_steps: overlap,
    local_steps: steps,
  }: LanguageModelTraining | SupervisedTraining,
  fault: AddFault,
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

/** Fields that would have no effect. */
function idleFaults(
  config: LanguageModelTraining | SupervisedTraining,
  given: ReadonlySet<string>,
  fault: AddFault,
): void {
  const { optimizer, local_steps: steps } = config;
  if (given.has("momentum") && optimizer !== "momentum" && optimizer !== "nesterov") {
    fault("momentum", `only the optimizers momentum and nesterov have it, not ${optimizer}`);
  }
  if (given.has("weight_decay") && optimizer !== "adamw") {
    fault("weight_decay", `only \`optimizer: adamw\` has it, not ${optimizer}`);
  }
  if (config.average_steps > 0 && config.consistency !== "bsp") {
    const why = "the last parts of others come after a worker's own last pull";
    fault("average_steps", `${why}: leave it out, or use \`consistency: bsp\``);
  }
  if (config.warm_start_steps > 0 && steps === 1) {
    fault("warm_start_steps", "with local_steps 1 every step is exchanged: leave it out");
  }
  if (config.warm_start_local_steps > steps) {
    const why = "a warm start exchanges more often than later rounds do";
    const use = `use at most local_steps ${steps}, not ${config.warm_start_local_steps}`;
    fault("warm_start_local_steps", `${why}: ${use}`);
  }
}

function targetFaults(config: SupervisedTraining, fault: AddFault): void {
  const { target, program } = config;
  const names = [target ?? []].flat();
  if (program === "classification" && names.length > 1) {
    fault("target", `a class is in one column, and these are ${names.length}: name one`);
  }
  const outputs = program === "regression" ? config.outputs : undefined;
  if (target !== undefined && outputs !== undefined && outputs !== names.length) {
    const why = `config.target names ${names.length} columns to predict`;
    fault("outputs", `${why}, and this is ${outputs}: leave it out`);
  }
  const twice = names.findIndex((name, at) => names.indexOf(name) !== at);
  if (twice >= 0) {
    fault("target", `it names the column ${JSON.stringify(names[twice])} twice: name it once`);
  }
}

function ppoFaults(config: PpoTraining, tasks: number, fault: AddFault): void {
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
    fault("total_timesteps", `one update takes ${sizes} steps: give at least that many`);
  }
  if (config.target_kl !== undefined && tasks > 1) {
    const why = "it ends an update's epochs early, which several tasks cannot agree on";
    fault("target_kl", `${why}: leave it out, or use one task instead of ${tasks}`);
  }
  if (tasks === 1) soleFaults(config, fault);
}

/** Adds the faults of ppo with one task. */
function soleFaults(config: PpoTraining, fault: AddFault): void {
  if (config.compression !== "none") {
    const why = "one task alone moves the parameters itself, and all of that must arrive";
    fault("compression", `${why}: use none, or several tasks, not ${config.compression}`);
  }
  if (config.pull_compression === "int8") {
    const why = "one task alone continues from its own parameters, and pulls none after the first";
    fault("pull_compression", `${why}: leave it out, or use several tasks`);
  }
}

function normalizationFaults(config: PpoTraining, tasks: number, fault: AddFault): void {
  const fields = ["normalize_observations", "normalize_rewards"] as const;
  for (const field of fields.filter((name) => config[name])) {
    if (tasks > 1) {
      const why = "each task would have moments of its own, by which policies differ";
      fault(field, `${why}: use one task with more \`num_envs\` instead of ${tasks} tasks`);
    }
  }
}

function languageModelFaults(config: LanguageModelTraining, fault: AddFault): void {
  if (config.replace_model && config.register_as === undefined) {
    fault("replace_model", "nothing is registered without register_as: give it, or leave this out");
  }
  const { hidden_size, heads, kv_heads } = config;
  if (hidden_size % (2 * heads) !== 0) {
    fault("hidden_size", `${hidden_size} must be an even multiple of heads ${heads}`);
  }
  if (heads % kv_heads !== 0) fault("kv_heads", `heads ${heads} must be a multiple of ${kv_heads}`);
}
