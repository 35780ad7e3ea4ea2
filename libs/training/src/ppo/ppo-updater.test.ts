// holds: train-target-kl

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import type { Backend } from "../backend.ts";
import { initialParameters } from "../initialize.ts";
import type { Parameters, PushTerms } from "../parameter-client.ts";
import { referenceBackend, runReference } from "../reference/reference-backend.ts";
import { gradientName, gradientsOf, nextName, stepOf, zeroState } from "../training-program.ts";
import { actorCriticParameters } from "./actor-critic.ts";
import { gatherExperience, shuffle } from "./minibatches.ts";
import { PPO_DEFAULTS } from "./ppo-config.ts";
import { ppoProgram } from "./ppo-program.ts";
import { localUpdater, sharedUpdater } from "./ppo-updater.ts";

const SEED = 11;
const POLICY = { observations: 2, actions: 2, continuous: false, hidden: 4 };
const CONFIG = { ...PPO_DEFAULTS, update_epochs: 6, num_minibatches: 4 };
const ROWS = 16;

/** Random rows; a choice had probability one half. */
function experienceOf(draw: (length: number) => Float32Array) {
  return {
    observation: draw(2 * ROWS),
    action: new Int32Array(ROWS).map((_, i) => i % 2),
    log_probability: new Float32Array(ROWS).fill(-Math.LN2),
    value: draw(ROWS),
    advantage: draw(ROWS),
    return: draw(ROWS),
  };
}

/** The `approximate_kl` of each minibatch, epoch by epoch, of one update on the same experience. */
async function epochsWith(targetKl: number): Promise<number[][]> {
  const random = seededRandom(SEED);
  const draw = (length: number) => Float32Array.from({ length }, () => 2 * random() - 1);
  const epochs: number[][] = [];
  const backend: Backend = {
    ...referenceBackend,
    compile: async (executable) => {
      const compiled = await referenceBackend.compile(executable);
      return {
        close: () => compiled.close(),
        run: async (feeds) => {
          const results = await compiled.run(feeds);
          epochs.push([...(results["approximate_kl"] ?? [])]);
          return results;
        },
      };
    },
  };
  const config = { ...CONFIG, target_kl: targetKl };
  const updater = await localUpdater({
    backend,
    config,
    random,
    program: ppoProgram(POLICY, ROWS / config.num_minibatches, config),
    client: { pull: () => Promise.resolve(0), push: () => Promise.resolve() },
    parameters: initialParameters(actorCriticParameters(POLICY), random),
  });
  await updater.update(experienceOf(draw), 0.02);
  await updater.close();
  return epochs;
}

test("target_kl: ends an update's epochs by the last minibatch, not by the mean", async () => {
  const all = await epochsWith(1e6);
  expect(all.map((epoch) => epoch.length)).toEqual(Array(6).fill(4));
  const lasts = all.map((epoch) => epoch.at(-1) ?? 0);
  const means = all.map((epoch) => epoch.reduce((sum, each) => sum + each, 0) / epoch.length);
  // Each target is halfway between the two of one epoch, so that the results differ somewhere.
  const stopping = (values: readonly number[], target: number) => {
    const at = values.findIndex((value) => value > target);
    return at < 0 ? values.length : at + 1;
  };
  const targets = lasts
    .map((last, epoch) => (last + (means[epoch] ?? 0)) / 2)
    .filter((target) => target > 0 && stopping(lasts, target) !== stopping(means, target));
  expect(targets, `seed ${SEED}`).not.toEqual([]);
  for (const target of targets) {
    expect(await epochsWith(target), `seed ${SEED}`).toHaveLength(stopping(lasts, target));
  }
});

/** An experience, a program of its minibatches, and all that was sent to the servers. */
function jobOf(config = { ...CONFIG, update_epochs: 2 }) {
  const random = seededRandom(SEED);
  const draw = (length: number) => Float32Array.from({ length }, () => 2 * random() - 1);
  const pushed: { readonly part: Parameters; readonly terms: PushTerms }[] = [];
  const program = ppoProgram(POLICY, ROWS / config.num_minibatches, config);
  const parameters = initialParameters(actorCriticParameters(POLICY), random);
  const push = async (part: Parameters, terms: PushTerms) =>
    void pushed.push({ part: structuredClone(part), terms });
  return { config, program, parameters, push, pushed, experience: experienceOf(draw) };
}

/** The rows of each minibatch, as an updater with the same random numbers draws them. */
function minibatchesOf({ config, experience }: ReturnType<typeof jobOf>, seed: number) {
  const order = Int32Array.from({ length: ROWS }, (_, row) => row);
  const random = seededRandom(seed);
  const size = ROWS / config.num_minibatches;
  return Array.from({ length: config.update_epochs }, () => {
    shuffle(order, random);
    const shuffled = order.slice();
    return Array.from({ length: config.num_minibatches }, (_, at) =>
      gatherExperience(experience, shuffled.subarray(at * size, (at + 1) * size)),
    );
  }).flat();
}

/** The published settings of CleanRL's PPO. */
const CLEANRL_ADAM = {
  kind: "adam",
  beta1: 0.9,
  beta2: 0.999,
  epsilon: 1e-5,
  weightDecay: 0,
} as const;

test("local updater: takes Adam's steps at the update's rate; pushes the displacement", async () => {
  const job = jobOf();
  const { program, config, parameters, push, pushed, experience } = job;
  const before = structuredClone(parameters);
  const updater = await localUpdater({
    backend: referenceBackend,
    program,
    config,
    parameters,
    random: seededRandom(3),
    client: { pull: () => Promise.resolve(0), push },
  });
  await updater.update(experience, 0.03);
  await updater.close();
  const rules = { optimizer: CLEANRL_ADAM, maxGradientNorm: config.max_grad_norm };
  const step = stepOf(program, rules);
  let kept: Record<string, ArrayLike<number>> = { ...before, ...zeroState(program, CLEANRL_ADAM) };
  for (const rows of minibatchesOf(job, 3)) {
    const results = runReference(step, { ...kept, ...rows, learning_rate: [0.03] });
    kept = Object.fromEntries(Object.keys(kept).map((name) => [name, results[nextName(name)]!]));
  }
  expect(pushed.map(({ terms }) => terms)).toEqual([{ weight: 1, learningRate: 1 }]);
  for (const [name, data] of Object.entries(parameters)) {
    for (const [i, value] of data.entries()) {
      expect(value).toBeCloseTo(kept[name]?.[i] ?? Number.NaN, 5);
      const moved = (before[name]?.[i] ?? Number.NaN) - value;
      expect(pushed[0]?.part[name]?.[i]).toBeCloseTo(moved, 6);
    }
  }
});

test("shared updater: pushes each minibatch's gradients with its rows and the rate", async () => {
  const job = jobOf();
  const { program, config, parameters, push, pushed, experience } = job;
  const seen: Parameters[] = [];
  // The servers change the parameters after each push.
  const pull = async (into: Parameters) => {
    for (const data of Object.values(into)) data.set(data.map((value) => value + 0.1));
    return seen.push(structuredClone(into));
  };
  const before = structuredClone(parameters);
  const updater = await sharedUpdater({
    backend: referenceBackend,
    program,
    config,
    parameters,
    random: seededRandom(3),
    client: { pull, push },
  });
  await updater.update(experience, 0.03);
  await updater.close();
  const minibatches = minibatchesOf(job, 3);
  expect(pushed.map(({ terms }) => terms)).toEqual(
    minibatches.map(() => ({ weight: ROWS / config.num_minibatches, learningRate: 0.03 })),
  );
  const gradients = gradientsOf(program);
  for (const [at, rows] of minibatches.entries()) {
    const results = runReference(gradients, { ...[before, ...seen][at], ...rows });
    for (const [name, part] of Object.entries(pushed[at]?.part ?? {})) {
      for (const [i, value] of part.entries()) {
        expect(value).toBeCloseTo(results[gradientName(name)]?.[i] ?? Number.NaN, 6);
      }
    }
  }
});
