/**
 * Weave's outer step, after DiLoCo (Douillard et al., 2023): workers run H local steps; the mean of
 * how far they have moved is taken as a gradient of Nesterov momentum.
 *
 *   d = mean over workers of (theta_before - theta_local)
 *   v = momentum v + d
 *   theta -= learningRate (d + momentum v)
 *
 * With momentum 0 and learning rate 1 the new parameters are the mean of the workers' own; with one
 * local step of plain SGD that is synchronous SGD exactly.
 */
export interface OuterOptimizer {
  readonly learningRate: number;
  readonly momentum: number;
}

/** Changes parameters and velocity in place; all three have the same length. */
export function applyOuterStep(
  { learningRate, momentum }: OuterOptimizer,
  parameters: Float32Array,
  velocity: Float32Array,
  displacement: Float32Array,
): void {
  for (let i = 0; i < parameters.length; i++) {
    const moved = displacement[i] ?? 0;
    const next = momentum * (velocity[i] ?? 0) + moved;
    velocity[i] = next;
    parameters[i] = (parameters[i] ?? 0) - learningRate * (moved + momentum * next);
  }
}
