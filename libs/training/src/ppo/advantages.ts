/** A rollout of `steps` steps in `environments` environments, step by step. */
export interface Rollout {
  readonly steps: number;
  readonly environments: number;
  readonly rewards: Float32Array;
  readonly values: Float32Array;
  /** 1 where the episode had ended with this step. */
  readonly dones: Float32Array;
  /**
   * Where the episode was cut off at this step, the value of the last observation; 0 everywhere
   * else.
   */
  readonly cutValues: Float32Array;
  /** Values of the observations after the last step, one for each environment. */
  readonly lastValues: Float32Array;
}

/**
 * Generalized advantage estimation (Schulman et al., 2016), and the returns that go with it: A_t =
 * delta_t + gamma lambda (1 - done_t) A_{t+1}; delta_t = r_t + gamma ((1 - done_t) V_{t+1} + cut_t)
 * - V_t. The value after a terminated episode is 0; after a truncated one it is the critic's
 * estimate (partial-episode bootstrapping; Pardo et al., 2018). The next episode affects neither.
 */
export function estimateAdvantages(
  rollout: Rollout,
  gamma: number,
  lambda: number,
): { readonly advantages: Float32Array; readonly returns: Float32Array } {
  const { steps, environments, rewards, values, dones, cutValues, lastValues } = rollout;
  const advantages = new Float32Array(steps * environments);
  const returns = new Float32Array(steps * environments);
  for (let environment = 0; environment < environments; environment++) {
    let advantage = 0;
    let next = lastValues[environment] ?? 0;
    for (let step = steps - 1; step >= 0; step--) {
      const at = step * environments + environment;
      const value = values[at] ?? 0;
      const goesOn = 1 - (dones[at] ?? 0);
      const following = next * goesOn + (cutValues[at] ?? 0);
      const delta = (rewards[at] ?? 0) + gamma * following - value;
      advantage = delta + gamma * lambda * goesOn * advantage;
      advantages[at] = advantage;
      returns[at] = advantage + value;
      next = value;
    }
  }
  return { advantages, returns };
}
