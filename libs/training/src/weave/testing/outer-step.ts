import type { OuterOptimizer } from "../outer-optimizer.ts";

/**
 * The definition of the outer step, for servers of tests; the parameter servers have a kernel of
 * their own. Changes parameters and velocity in place; all three have the same length.
 */
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
