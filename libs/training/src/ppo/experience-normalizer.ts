import type { VectorEnvironment } from "../environments/vector-environment.ts";
import type { Parameters } from "../parameter-client.ts";
import type { ParameterSpec } from "../training-program.ts";
import { momentParameters, NORMALIZED_LIMIT, RunningMoments } from "./running-moments.ts";

/** Which of an experience's numbers are normalised by what was seen of them so far. */
export interface NormalizationConfig {
  readonly normalize_observations: boolean;
  readonly normalize_rewards: boolean;
  readonly gamma: number;
}

/** Where the moments of observations are kept among the parameters. */
export const OBSERVATIONS = "observations";
const RETURNS = "returns";

/** What is kept beside the policy's parameters: the moments go wherever these go. */
export function normalizationParameters(
  config: NormalizationConfig,
  observations: number,
): ParameterSpec[] {
  return [
    ...(config.normalize_observations ? momentParameters(OBSERVATIONS, observations) : []),
    ...(config.normalize_rewards ? momentParameters(RETURNS, 1) : []),
  ];
}

/**
 * Observations to mean 0 and deviation 1, rewards divided by the deviation of the discounted return,
 * both cut at 10, as Stable-Baselines3's VecNormalize and the wrappers of CleanRL's
 * `ppo_continuous_action` do; what is off passes as it is.
 */
export class ExperienceNormalizer {
  /** What the policy sees, row by row; the environments' own where observations are left alone. */
  readonly observations: Float32Array;
  /** The discounted return of each environment's episode so far; empty where rewards are left alone. */
  readonly discounted: Float64Array;
  readonly #worlds: VectorEnvironment;
  readonly #config: NormalizationConfig;
  readonly #parameters: Parameters;
  #seen: RunningMoments;
  #returned: RunningMoments;

  constructor(worlds: VectorEnvironment, config: NormalizationConfig, parameters: Parameters) {
    this.#worlds = worlds;
    this.#config = config;
    this.#parameters = parameters;
    this.observations = config.normalize_observations
      ? new Float32Array(worlds.observations.length)
      : worlds.observations;
    this.discounted = new Float64Array(config.normalize_rewards ? worlds.size : 0);
    this.#seen = new RunningMoments(parameters, OBSERVATIONS);
    this.#returned = new RunningMoments(parameters, RETURNS);
  }

  /** The greatest reward so far as the critic meets it, by its amount. */
  get greatestReward(): number {
    return this.#config.normalize_rewards ? NORMALIZED_LIMIT : this.#worlds.greatestReward;
  }

  /** Goes on from the moments among the parameters, to the bit, however they came there. */
  beginRollout(): void {
    this.#seen = new RunningMoments(this.#parameters, OBSERVATIONS);
    this.#returned = new RunningMoments(this.#parameters, RETURNS);
  }

  /** Leaves the moments among the parameters. */
  endRollout(): void {
    this.#seen.keepIn(this.#parameters);
    this.#returned.keepIn(this.#parameters);
  }

  /** Learns from what the environments show and fills `observations`. */
  observe(): void {
    if (!this.#config.normalize_observations) return;
    this.#seen.add(this.#worlds.observations);
    this.look();
  }

  /** Fills `observations` alone. */
  look(): void {
    if (!this.#config.normalize_observations) return;
    this.observations.set(this.normalized(this.#worlds.observations));
  }

  /** Rows as the policy would see them now; nothing is learned from them. */
  normalized(rows: Float32Array): Float32Array {
    if (!this.#config.normalize_observations) return rows;
    const { mean, inverseDeviation } = this.#seen.scale();
    const width = mean.length;
    return rows.map((number, at) => {
      const i = at % width;
      return limited((number - (mean[i] ?? 0)) * (inverseDeviation[i] ?? 1));
    });
  }

  /** Learns from a step's rewards and scales them in place; `dones` is 1 where an episode ended. */
  scaleRewards(rewards: Float32Array, dones: Float32Array): void {
    if (!this.#config.normalize_rewards) return;
    const { discounted } = this;
    for (const [i, reward] of rewards.entries()) {
      discounted[i] = (discounted[i] ?? 0) * this.#config.gamma + reward;
    }
    this.#returned.add(discounted);
    const { inverseDeviation } = this.#returned.scale();
    for (const [i, reward] of rewards.entries()) {
      rewards[i] = limited(reward * (inverseDeviation[0] ?? 1));
      if (dones[i] === 1) discounted[i] = 0;
    }
  }
}

function limited(number: number): number {
  return Math.min(NORMALIZED_LIMIT, Math.max(-NORMALIZED_LIMIT, number));
}
