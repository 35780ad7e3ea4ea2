import type { VectorEnvironment } from "../environments/vector-environment.ts";
import type { RankState } from "../training-loop.ts";

/** What a worker's experience goes on from: its environments, and its latest returns. */
interface OngoingExperience {
  readonly worlds: VectorEnvironment;
  /** Of the latest episodes; changed in place. */
  readonly returns: number[];
}

/** Of a rank's state, what is no optimizer's. */
const WORLDS = "worlds";
const RETURNS = "returns";

/** For a rank's state beside the optimizer's; nothing where an environment cannot be kept. */
export function keepExperience({ worlds, returns }: OngoingExperience): RankState {
  const snapshot = worlds.snapshot();
  if (!snapshot) return {};
  return { [WORLDS]: asSingles(snapshot), [RETURNS]: asSingles(Float64Array.from(returns)) };
}

/** Goes on from a rank's state where it has what is needed; the optimizer's part of it. */
export function resumeExperience(
  { worlds, returns }: OngoingExperience,
  state: RankState | undefined,
): RankState | undefined {
  const { [WORLDS]: kept, [RETURNS]: latest, ...optimizer } = state ?? {};
  if (kept && latest && worlds.restore(asDoubles(kept))) {
    returns.splice(0, returns.length, ...asDoubles(latest));
  }
  return Object.keys(optimizer).length > 0 ? optimizer : undefined;
}

/** The same bits: what a rank keeps are singles, and worlds count in doubles. */
function asSingles(doubles: Float64Array<ArrayBuffer>): Float32Array {
  return new Float32Array(doubles.buffer);
}

function asDoubles(singles: Float32Array): Float64Array {
  // Copied, since doubles must begin at a multiple of eight.
  return new Float64Array(singles.slice().buffer);
}
