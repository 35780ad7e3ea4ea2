import type { VectorEnvironment } from "../environments/vector-environment.ts";
import type { Parameters } from "../parameter-client.ts";
import type { ParameterSpec } from "../training-program.ts";
import { momentParameters, NORMALIZED_LIMIT, RunningMoments } from "./running-moments.ts";

/** Which numbers of an experience are normalized by their running moments. */
export interface NormalizationConfig {
  readonly normalize_observations: boolean;
  readonly normalize_rewards: boolean;
  readonly gamma: number;
}

/** The name of the observations' moments among the parameters. */
export const OBSERVATIONS = "observations";
const RETURNS = "returns";

/** The moments as parameters: they are stored and moved with the policy's. */
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
 * Normalizes observations to mean 0 and deviation 1, and divides rewards by the deviation of the
 * discounted return. Both are clipped at 10, as in Stable-Baselines3's VecNormalize and CleanRL's
 * `ppo_continuous_action`; what is off passes unchanged.
 */
export class ExperienceNormalizer {
  /**
   * The policy's input, row by row; the environments' own rows where observations are not
   * normalized.
   */
  readonly observations: Float32Array;
  /**
   * The discounted return of each environment's current episode; empty where rewards are not
   * normalized.
   */
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

  /** The greatest absolute reward so far, after scaling. */
  get greatestReward(): number {
    return this.#config.normalize_rewards ? NORMALIZED_LIMIT : this.#worlds.greatestReward;
  }

  /** Continues from the moments among the parameters, bit by bit. */
  beginRollout(): void {
    this.#seen = new RunningMoments(this.#parameters, OBSERVATIONS);
    this.#returned = new RunningMoments(this.#parameters, RETURNS);
  }

  /** Writes the moments to the parameters. */
  endRollout(): void {
    this.#seen.keepIn(this.#parameters);
    this.#returned.keepIn(this.#parameters);
  }

  /** Updates the moments by the current observations and fills `observations`. */
  observe(): void {
    if (!this.#config.normalize_observations) return;
    this.#seen.add(this.#worlds.observations);
    this.refresh();
  }

  /** Fills `observations` without an update of the moments. */
  refresh(): void {
    if (!this.#config.normalize_observations) return;
    this.observations.set(this.normalized(this.#worlds.observations));
  }

  /** Rows as the policy would see them now; the moments do not change. */
  normalized(rows: Float32Array): Float32Array {
    if (!this.#config.normalize_observations) return rows;
    const { mean, inverseDeviation } = this.#seen.scale();
    const width = mean.length;
    return rows.map((number, at) => {
      const i = at % width;
      return limited((number - (mean[i] ?? 0)) * (inverseDeviation[i] ?? 1));
    });
  }

  /**
   * Updates the moments by a step's rewards and scales them in place; `dones` is 1 where an episode
   * ended.
   */
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
