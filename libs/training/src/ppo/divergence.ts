import type { Parameters } from "../parameter-client.ts";
import type { UpdateMetrics } from "./ppo-updater.ts";

/** Nats, as the mean of an update; well-chosen settings stay below 0.1, poor ones below 10. */
const MAX_KL = 1_000;
/** The bound of the root mean square value error, in multiples of the greatest possible return. */
const MAX_VALUE_ERROR = 1_000;

/** What is known after an update. */
export interface Updated {
  readonly parameters: Parameters;
  readonly metrics: UpdateMetrics;
  /** The greatest absolute reward so far. */
  readonly greatestReward: number;
  /** The greatest number of rewards in a return: of an episode, or as discounted. */
  readonly horizon: number;
}

/**
 * Why training has diverged: numbers that are not finite, a policy that moved too far in one
 * update, or values beyond any possible return. Undefined where it has not.
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
