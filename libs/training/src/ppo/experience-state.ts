import type { VectorEnvironment } from "../environments/vector-environment.ts";
import type { RankState } from "../training-loop.ts";

/**
 * The state from which a worker's experience continues: its environments and its latest returns.
 */
interface OngoingExperience {
  readonly worlds: VectorEnvironment;
  /** The returns of the latest episodes; changed in place. */
  readonly returns: number[];
  /** The discounted return of each environment so far; empty where unused. */
  readonly discounted: Float64Array;
}

/** The part of a rank's state that is not the optimizer's. */
const WORLDS = "worlds";
const RETURNS = "returns";
const DISCOUNTED = "discounted";

/** State to store beside the optimizer's; empty where an environment has no snapshot. */
export function keepExperience({ worlds, returns, discounted }: OngoingExperience): RankState {
  const snapshot = worlds.snapshot();
  if (!snapshot) return {};
  return {
    [WORLDS]: asSingles(snapshot),
    [RETURNS]: asSingles(Float64Array.from(returns)),
    ...(discounted.length > 0 && { [DISCOUNTED]: asSingles(discounted.slice()) }),
  };
}

/**
 * Restores the experience from a rank's state where it is complete; returns the optimizer's part.
 */
export function resumeExperience(
  { worlds, returns, discounted }: OngoingExperience,
  state: RankState | undefined,
): RankState | undefined {
  const {
    [WORLDS]: kept,
    [RETURNS]: latest,
    [DISCOUNTED]: sums = new Float32Array(),
    ...optimizer
  } = state ?? {};
  const isComplete = kept && latest && sums.length === 2 * discounted.length;
  if (isComplete && worlds.restore(asDoubles(kept))) {
    returns.splice(0, returns.length, ...asDoubles(latest));
    discounted.set(asDoubles(sums));
  }
  return Object.keys(optimizer).length > 0 ? optimizer : undefined;
}

/** The same bits as singles: a rank's state is float32, and environments use float64. */
function asSingles(doubles: Float64Array<ArrayBuffer>): Float32Array {
  return new Float32Array(doubles.buffer);
}

function asDoubles(singles: Float32Array): Float64Array {
  // Copied, since doubles must begin at a multiple of eight.
  return new Float64Array(singles.slice().buffer);
}
