import { toAppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { Backend } from "../backend.ts";
import type { Environment } from "../environments/environment.ts";
import { VectorEnvironment } from "../environments/vector-environment.ts";
import { bad } from "../ir/shapes.ts";
import type { ParameterClient, Parameters } from "../parameter-client.ts";
import type { ParameterSpec } from "../training-program.ts";
import { actorCriticParameters, type PolicyShape } from "./actor-critic.ts";
import { divergenceOf } from "./divergence.ts";
import { ExperienceNormalizer, normalizationParameters } from "./experience-normalizer.ts";
import { keepExperience, resumeExperience } from "./experience-state.ts";
import type { PpoConfig } from "./ppo-config.ts";
import { policyForward, ppoProgram } from "./ppo-program.ts";
import { diverged, localUpdater, sharedUpdater, type UpdateMetrics } from "./ppo-updater.ts";
import { collectRollout } from "./rollout-collector.ts";

/** The report of one iteration. */
export interface PpoProgress {
  /** From 1. */
  readonly iteration: number;
  readonly iterations: number;
  /** Steps of all workers' environments so far. */
  readonly timesteps: number;
  /** The mean of this worker's last 100 episodes; absent before the first ended. */
  readonly episodeReturn?: number | undefined;
  /** The number of episodes in that mean. */
  readonly episodes: number;
  readonly metrics: UpdateMetrics;
  /** The worker's state beside the parameters, from which it can resume. */
  readonly state: Readonly<Record<string, Float32Array>>;
}

export interface PpoWorkerOptions {
  readonly config: PpoConfig;
  readonly makeEnvironment: () => Environment;
  readonly backend: Backend;
  readonly client: ParameterClient;
  /**
   * This worker's random numbers for each iteration, so that a resumed worker has the same. Its
   * environments begin with those of the iteration before.
   */
  readonly draws: (iteration: number) => Random;
  readonly workers: number;
  /** This worker's copy of the model; filled by the first pull. */
  readonly parameters: Parameters;
  /** From a checkpoint; zeros where absent. */
  readonly state?: Readonly<Record<string, Float32Array>> | undefined;
  /** Iterations that the checkpoint contains. */
  readonly done: number;
  readonly signal: AbortSignal;
  /** `stop` ends the job here, before its iterations have ended. */
  readonly report: (progress: PpoProgress) => Promise<"continue" | "stop">;
}

/** Episodes that the reported return is the mean of. */
const RETURN_WINDOW = 100;

/** The policy's action space for an environment. */
export function policyFor(environment: Environment, hidden: number): PolicyShape {
  const { observations, actions, continuous } = environment;
  return { observations, actions, continuous, hidden };
}

/** All parameters on a job's servers: the policy, and the moments of the normalization. */
export function ppoParameters(environment: Environment, config: PpoConfig): ParameterSpec[] {
  return [
    ...actorCriticParameters(policyFor(environment, config.hidden)),
    ...normalizationParameters(config, environment.observations),
  ];
}

/**
 * Iterations of whole batches within `total_timesteps`. Throws an AppError `invalid_value` where
 * there are none, or where the batch does not divide into minibatches.
 */
export function ppoIterations(config: PpoConfig, workers: number): number {
  const batch = config.num_envs * config.num_steps;
  if (batch % config.num_minibatches !== 0) {
    const size = `num_envs * num_steps = ${batch}`;
    throw bad(`${size} must be a multiple of num_minibatches ${config.num_minibatches}`);
  }
  const iterations = Math.floor(config.total_timesteps / (batch * workers));
  if (iterations > 0) return iterations;
  throw bad(
    `total_timesteps ${config.total_timesteps} are less than one batch, ${batch * workers}`,
  );
}

/**
 * One worker of a PPO job, from the first pull to the last push. Rejects with an AppError
 * `invalid_value` that names the step where training diverges (`divergenceOf`).
 */
export async function runPpoWorker(options: PpoWorkerOptions): Promise<void> {
  const { config, backend, client, parameters, workers, signal } = options;
  const iterations = ppoIterations(config, workers);
  const returns: number[] = [];
  let current = options.draws(options.done);
  const random = () => current();
  const worlds = new VectorEnvironment(
    Array.from({ length: config.num_envs }, options.makeEnvironment),
    random,
    (episode) => {
      returns.push(episode.return);
      if (returns.length > RETURN_WINDOW) returns.shift();
    },
  );
  const sample = options.makeEnvironment();
  const { maxSteps } = sample;
  const policy = policyFor(sample, config.hidden);
  const batch = config.num_envs * config.num_steps;
  const program = ppoProgram(policy, batch / config.num_minibatches, config);
  const forward = await backend.compile(policyForward(policy, config.num_envs));
  const makeUpdater = workers === 1 ? localUpdater : sharedUpdater;
  const normalizer = new ExperienceNormalizer(worlds, config, parameters);
  const experienced = { worlds, returns, discounted: normalizer.discounted };
  const state = resumeExperience(experienced, options.state);
  await client.pull(parameters);
  const updater = await makeUpdater({ ...options, program, random, state });
  const { num_steps: steps, gamma, gae_lambda: lambda } = config;
  const { bootstrap_truncated: bootstrapTruncated } = config;
  for (let iteration = options.done + 1; iteration <= iterations; iteration++) {
    signal.throwIfAborted();
    current = options.draws(iteration);
    const timesteps = iteration * batch * workers;
    const collector = { policy, forward, worlds, normalizer, steps, gamma, lambda, random };
    const rollout = { ...collector, bootstrapTruncated };
    const experience = await collectRollout(rollout, parameters);
    const left = config.anneal_lr ? 1 - (iteration - 1) / iterations : 1;
    const metrics = await updater
      .update(experience, config.learning_rate * left)
      .catch((error: unknown) => Promise.reject(withLocation(error, iteration, timesteps)));
    const why = divergenceOf({
      parameters,
      metrics,
      greatestReward: normalizer.greatestReward,
      horizon: Math.min(1 / (1 - gamma), maxSteps),
    });
    if (why) throw withLocation(diverged(why), iteration, timesteps);
    const next = await options.report({
      iteration,
      iterations,
      timesteps,
      episodeReturn: returns.length > 0 ? mean(returns) : undefined,
      episodes: returns.length,
      metrics,
      state: { ...updater.state, ...keepExperience(experienced) },
    });
    if (next === "stop") break;
  }
  await updater.close();
  await forward.close();
}

/** The error with the iteration and step at which it occurred. */
function withLocation(error: unknown, iteration: number, timesteps: number): unknown {
  const { code, message } = toAppError(error);
  if (code !== "invalid_value") return error;
  return bad(`at step ${timesteps}, in iteration ${iteration}, ${message}`);
}

function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}
