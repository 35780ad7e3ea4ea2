import type { Parameters } from "../parameter-client.ts";
import type { UpdateMetrics } from "./ppo-updater.ts";

/** Nats, as the mean of an update; what is well chosen stays below 0.1, and what is poor below 10. */
const MAX_KL = 1_000;
/** How many times the greatest return that there can be values may be wrong by, as a root mean square. */
const MAX_VALUE_ERROR = 1_000;

/** What is known after an update. */
export interface Updated {
  readonly parameters: Parameters;
  readonly metrics: UpdateMetrics;
  /** The greatest reward so far, by its amount. */
  readonly greatestReward: number;
  /** Rewards that a return can hold at most: of an episode, or as discounted. */
  readonly horizon: number;
}

/**
 * Why training has diverged: numbers that are none, a policy that moved beyond any sense in one
 * update, or values beyond any return that the rewards allow. Undefined where it has not.
 */
export function divergenceOf({ parameters, metrics, ...world }: Updated): string | undefined {
  for (const [name, data] of Object.entries(parameters)) {
    const bad = data.find((value) => !Number.isFinite(value));
    if (bad !== undefined) return `the parameters ${name} hold ${bad}`;
  }
  const { approximate_kl: moved = 0, value_loss: valueLoss = 0 } = metrics;
  if (!(moved <= MAX_KL)) {
    return `the policy moved by ${rounded(moved)} nats in one update, and ${MAX_KL} are the most`;
  }
  // The loss is half the mean square.
  const error = Math.sqrt(2 * valueLoss);
  const greatest = Math.max(1, world.greatestReward * world.horizon);
  if (error <= MAX_VALUE_ERROR * greatest) return undefined;
  return `values are wrong by ${rounded(error)}, and no return can be above ${rounded(greatest)}`;
}

function rounded(number: number): string {
  return String(Number(number.toPrecision(3)));
}
