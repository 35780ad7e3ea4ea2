import type { AlgorithmPlan } from "../training-loop.ts";

/**
 * Weave's outer step, after DiLoCo (Douillard et al., 2023): workers run H local steps; the mean of
 * their displacements is the gradient of Nesterov momentum.
 *
 * d = mean over workers of (theta_before - theta_local)
 * v = momentum v + d
 * theta -= learningRate (d + momentum v)
 *
 * With momentum 0 and learning rate 1 the new parameters are the mean of the workers' own. With one
 * local step of plain SGD that is synchronous SGD exactly.
 */
export interface OuterOptimizer {
  readonly learningRate: number;
  readonly momentum: number;
}

/**
 * The outer step as the parameter servers' settings. Where each of `parts` parts is an update by
 * itself, all of them together make one step.
 */
export function outerServers(
  { learningRate, momentum }: OuterOptimizer,
  parts: number,
): AlgorithmPlan["servers"] {
  return {
    optimizer: { kind: "sgd", momentum, nesterov: momentum > 0 },
    learningRate: learningRate / parts,
  };
}
