import type { NormalizationConfig } from "./experience-normalizer.ts";
import type { PpoLoss } from "./ppo-program.ts";

/** Hyperparameters under CleanRL's names. */
export interface PpoConfig extends PpoLoss, NormalizationConfig {
  /** Steps of all environments of all workers together. */
  readonly total_timesteps: number;
  readonly learning_rate: number;
  /** Environments of one worker. */
  readonly num_envs: number;
  readonly num_steps: number;
  readonly anneal_lr: boolean;
  readonly gae_lambda: number;
  /**
   * The value after a truncated episode is the critic's estimate for its last observation, not 0.
   */
  readonly bootstrap_truncated: boolean;
  readonly num_minibatches: number;
  readonly update_epochs: number;
  readonly max_grad_norm: number;
  /** Ends an update's epochs early when the policy has moved this far. */
  readonly target_kl?: number | undefined;
  /** Units of each hidden layer. */
  readonly hidden: number;
}

/** CleanRL's defaults for classic control. */
export const PPO_DEFAULTS: PpoConfig = {
  total_timesteps: 500_000,
  learning_rate: 2.5e-4,
  num_envs: 4,
  num_steps: 128,
  anneal_lr: true,
  gamma: 0.99,
  gae_lambda: 0.95,
  bootstrap_truncated: true,
  normalize_observations: false,
  normalize_rewards: false,
  num_minibatches: 4,
  update_epochs: 4,
  norm_adv: true,
  clip_coef: 0.2,
  clip_vloss: true,
  ent_coef: 0.01,
  vf_coef: 0.5,
  max_grad_norm: 0.5,
  hidden: 64,
};
