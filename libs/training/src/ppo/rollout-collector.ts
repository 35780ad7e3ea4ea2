import type { Random } from "@heddle/base/random";
import type { CompiledProgram } from "../backend.ts";
import type { VectorEnvironment } from "../environments/vector-environment.ts";
import { normal } from "../initialize.ts";
import type { Parameters } from "../parameter-client.ts";
import type { PolicyShape } from "./actor-critic.ts";
import { estimateAdvantages } from "./advantages.ts";
import type { ExperienceNormalizer } from "./experience-normalizer.ts";

/** The input of an update, step by step and environment by environment. */
export interface Experience {
  readonly observation: Float32Array;
  readonly action: Int32Array | Float32Array;
  readonly log_probability: Float32Array;
  readonly value: Float32Array;
  readonly advantage: Float32Array;
  readonly return: Float32Array;
}

export interface CollectorOptions {
  readonly policy: PolicyShape;
  /** `policyForward` for as many observations as there are environments. */
  readonly forward: CompiledProgram;
  readonly worlds: VectorEnvironment;
  /** The normalizer of the same environments. */
  readonly normalizer: ExperienceNormalizer;
  readonly steps: number;
  readonly gamma: number;
  readonly lambda: number;
  /** Whether the value after a truncated episode is the critic's estimate. */
  readonly bootstrapTruncated: boolean;
  readonly random: Random;
}

const HALF_LOG_TWO_PI = Math.log(2 * Math.PI) / 2;

/** Runs the policy for a number of steps in all environments. */
export async function collectRollout(
  options: CollectorOptions,
  parameters: Parameters,
): Promise<Experience> {
  const { worlds, normalizer, steps, policy, forward } = options;
  const count = steps * worlds.size;
  const width = policy.continuous ? policy.actions : 1;
  const Actions = policy.continuous ? Float32Array : Int32Array;
  const observation = new Float32Array(count * policy.observations);
  const action = new Actions(count * width);
  const logs = new Float32Array(count);
  const value = new Float32Array(count);
  const rewards = new Float32Array(count);
  const dones = new Float32Array(count);
  const cuts: Cut[] = [];
  const feeds = { ...parameters, observation: normalizer.observations };
  normalizer.beginRollout();
  for (let step = 0; step < steps; step++) {
    const at = step * worlds.size;
    normalizer.observe();
    observation.set(normalizer.observations, at * policy.observations);
    const { head, value: values } = (await forward.run(feeds)) as Outputs;
    const chosen = action.subarray(at * width, (at + worlds.size) * width);
    act(options, parameters, head, chosen, logs.subarray(at, at + worlds.size));
    value.set(values, at);
    const outcome = worlds.step(chosen);
    normalizer.scaleRewards(outcome.rewards, outcome.dones);
    rewards.set(outcome.rewards, at);
    dones.set(outcome.dones, at);
    for (const { environment, observation: last } of outcome.truncations) {
      cuts.push({ at: at + environment, observation: normalizer.normalized(last) });
    }
  }
  // The next rollout updates the moments by these observations: it begins with them.
  normalizer.refresh();
  const { value: lastValues } = (await forward.run(feeds)) as Outputs;
  normalizer.endRollout();
  const cutValues = options.bootstrapTruncated
    ? await valuesAt(cuts, options, parameters, count)
    : new Float32Array(count);
  const rollout = {
    steps,
    environments: worlds.size,
    rewards,
    values: value,
    dones,
    cutValues,
    lastValues,
  };
  const { advantages, returns } = estimateAdvantages(rollout, options.gamma, options.lambda);
  return {
    observation,
    action,
    log_probability: logs,
    value,
    advantage: advantages,
    return: returns,
  };
}

/** An episode that was cut off in a rollout. */
interface Cut {
  /** The index of its last step among all steps of all environments. */
  readonly at: number;
  /** The last observation, normalized. */
  readonly observation: Float32Array;
}

/**
 * The critic's values of the last observations of truncated episodes, each at its index; 0
 * elsewhere.
 */
async function valuesAt(
  cuts: readonly Cut[],
  { worlds, policy, forward }: CollectorOptions,
  parameters: Parameters,
  count: number,
): Promise<Float32Array> {
  const values = new Float32Array(count);
  const observation = new Float32Array(worlds.size * policy.observations);
  for (let first = 0; first < cuts.length; first += worlds.size) {
    const some = cuts.slice(first, first + worlds.size);
    for (const [row, cut] of some.entries()) {
      observation.set(cut.observation, row * policy.observations);
    }
    const { value } = (await forward.run({ ...parameters, observation })) as Outputs;
    for (const [row, { at }] of some.entries()) values[at] = value[row] ?? 0;
  }
  return values;
}

interface Outputs extends Record<string, Float32Array> {
  readonly head: Float32Array;
  readonly value: Float32Array;
}

/** Samples an action for each environment and records its log-probability. */
function act(
  { policy, random, worlds }: CollectorOptions,
  parameters: Parameters,
  head: Float32Array,
  actions: Int32Array | Float32Array,
  logs: Float32Array,
): void {
  const deviations = parameters["actor.log_deviation"];
  for (let world = 0; world < worlds.size; world++) {
    const row = head.subarray(world * policy.actions, (world + 1) * policy.actions);
    if (actions instanceof Int32Array) {
      const choice = drawChoice(row, random);
      actions[world] = choice;
      logs[world] = row[choice] ?? 0;
    } else {
      const numbers = actions.subarray(world * policy.actions, (world + 1) * policy.actions);
      logs[world] = drawNumbers(row, deviations ?? new Float32Array(), numbers, random);
    }
  }
}

function drawChoice(logs: Float32Array, random: Random): number {
  let rest = random();
  for (let choice = 0; choice < logs.length - 1; choice++) {
    rest -= Math.exp(logs[choice] ?? 0);
    if (rest < 0) return choice;
  }
  return logs.length - 1;
}

function drawNumbers(
  means: Float32Array,
  logDeviations: Float32Array,
  numbers: Float32Array,
  random: Random,
): number {
  let log = 0;
  for (let i = 0; i < means.length; i++) {
    const noise = normal(random);
    const logDeviation = logDeviations[i] ?? 0;
    numbers[i] = (means[i] ?? 0) + Math.exp(logDeviation) * noise;
    log += -0.5 * noise * noise - logDeviation - HALF_LOG_TWO_PI;
  }
  return log;
}
