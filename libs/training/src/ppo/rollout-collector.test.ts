// holds: train-advantages

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import type { Environment, StepOutcome } from "../environments/environment.ts";
import { VectorEnvironment } from "../environments/vector-environment.ts";
import { initialParameters } from "../initialize.ts";
import { referenceBackend, runReference } from "../reference/reference-backend.ts";
import { gradientsOf } from "../training-program.ts";
import { actorCriticParameters } from "./actor-critic.ts";
import { ExperienceNormalizer, normalizationParameters } from "./experience-normalizer.ts";
import { PPO_DEFAULTS } from "./ppo-config.ts";
import { policyForward, ppoProgram } from "./ppo-program.ts";
import { collectRollout } from "./rollout-collector.ts";

const GAMMA = 0.9;
const STEPS = 7;
const policy = { observations: 1, actions: 2, continuous: false, hidden: 4 };

/** Its observation is the number of steps after `from`, its reward 1 for each; cut off after three. */
function counter(third: Partial<StepOutcome> = {}, from = 0): Environment {
  let step = 0;
  return {
    name: "counter",
    observations: 1,
    actions: 2,
    continuous: false,
    maxSteps: 3,
    reset: (_, observation) => {
      step = 0;
      observation[0] = from;
    },
    step: (_, observation) => {
      observation[0] = from + ++step;
      return { reward: 1, terminated: false, ...(step === 3 ? third : {}) };
    },
  };
}

/** Seven steps of two environments whose episodes have three each; and the critic's estimate. */
async function collect(options: {
  readonly second?: Environment;
  readonly bootstrapTruncated: boolean;
  readonly normalized?: boolean;
  readonly scaled?: boolean;
}) {
  const random = seededRandom(3);
  const config = {
    normalize_observations: options.normalized ?? false,
    normalize_rewards: options.scaled ?? false,
    gamma: GAMMA,
  };
  const specs = [...actorCriticParameters(policy), ...normalizationParameters(config, 1)];
  const parameters = initialParameters(specs, random);
  const worlds = new VectorEnvironment(
    [counter(), options.second ?? counter()],
    random,
    () => undefined,
  );
  const normalizer = new ExperienceNormalizer(worlds, config, parameters);
  const forward = await referenceBackend.compile(policyForward(policy, 2));
  const { bootstrapTruncated } = options;
  const experience = await collectRollout(
    // Without lambda a return is the reward and the value of the next observation.
    {
      policy,
      forward,
      worlds,
      normalizer,
      random,
      bootstrapTruncated,
      steps: STEPS,
      gamma: GAMMA,
      lambda: 0,
    },
    parameters,
  );
  const worth = async (seen: number) => {
    const feeds = { ...parameters, observation: Float32Array.of(seen, seen) };
    return (await forward.run(feeds))["value"]?.[0] ?? Number.NaN;
  };
  const returns = (world: number) =>
    [...experience.return].filter((_, at) => at % 2 === world) as number[];
  return { returns, worth, parameters };
}

test("truncation: the value is the critic's estimate of the last observation", async () => {
  const { returns, worth } = await collect({ bootstrapTruncated: true });
  const values = await Promise.all([1, 2, 3].map(worth));
  expect(new Set(values).size).toBe(3);
  for (const world of [0, 1]) {
    for (const [step, given] of returns(world).entries()) {
      expect(given).toBeCloseTo(1 + GAMMA * (values[step % 3] ?? Number.NaN), 5);
    }
  }
});

test("rewards: a return is made of the rewards in their new scale", async () => {
  const [plain, scaled] = await Promise.all(
    [false, true].map((isScaled) => collect({ bootstrapTruncated: false, scaled: isScaled })),
  );
  // The last step of an episode has its reward alone.
  expect(plain?.returns(0)[2]).toBe(1);
  expect(scaled?.returns(0)[2]).toBeGreaterThan(0);
  expect(scaled?.returns(0)[2]).not.toBe(1);
});

test("truncation: each environment has the value of its own last observation", async () => {
  const { returns, worth } = await collect({
    bootstrapTruncated: true,
    second: counter({}, 10),
  });
  for (const [world, last] of [3, 13].entries()) {
    const value = await worth(last);
    for (const step of [2, 5]) expect(returns(world)[step]).toBeCloseTo(1 + GAMMA * value, 5);
  }
});

test("truncation: the value is 0 where the episode terminated or cuts count as ends", async () => {
  const ended = await collect({
    bootstrapTruncated: true,
    second: counter({ terminated: true }),
  });
  const last = await ended.worth(3);
  expect(ended.returns(0)[2]).toBeCloseTo(1 + GAMMA * last, 5);
  expect([ended.returns(1)[2], ended.returns(1)[5]]).toEqual([1, 1]);
  const plain = await collect({ bootstrapTruncated: false });
  for (const world of [0, 1]) {
    expect([plain.returns(world)[2], plain.returns(world)[5]]).toEqual([1, 1]);
    expect(plain.returns(world)[1]).toBeCloseTo(1 + GAMMA * (await plain.worth(2)), 5);
  }
});

test("truncation: a last observation is normalized and does not change moments", async () => {
  const { returns, worth, parameters } = await collect({
    bootstrapTruncated: true,
    normalized: true,
  });
  // Both show 0, 1 and 2 at the first three steps; the last observation, 3, is not among them.
  const seen = [0, 0, 1, 1, 2, 2];
  const [mean, variance] = [1, seen.reduce((sum, x) => sum + (x - 1) ** 2, 0) / seen.length];
  const last = await worth((3 - mean) / Math.sqrt(variance));
  expect(returns(0)[2]).toBeCloseTo(1 + GAMMA * last, 3);
  expect(parameters["observations.count"]?.[0]).toBeCloseTo(2 * STEPS, 2);
});

const PLAIN = { normalize_observations: false, normalize_rewards: false, gamma: GAMMA };

/** One rollout of two environments; a policy of numbers has deviations other than 1. */
async function rolloutOf(continuous: boolean) {
  const random = seededRandom(5);
  const shape = { ...policy, continuous };
  const make = () => ({ ...counter(), continuous });
  const parameters: Record<string, Float32Array> = {
    ...initialParameters(actorCriticParameters(shape), random),
    ...(continuous && { "actor.log_deviation": Float32Array.of(0.7, -1.2) }),
  };
  const worlds = new VectorEnvironment([make(), make()], random, () => undefined);
  const forward = await referenceBackend.compile(policyForward(shape, 2));
  const experience = await collectRollout(
    {
      policy: shape,
      forward,
      worlds,
      random,
      bootstrapTruncated: false,
      normalizer: new ExperienceNormalizer(worlds, PLAIN, parameters),
      steps: STEPS,
      gamma: GAMMA,
      lambda: 0,
    },
    parameters,
  );
  return { shape, parameters, experience };
}

test.each([false, true])("rollout: probabilities equal the loss's, numbers %s", async (numbers) => {
  const { shape, parameters, experience } = await rolloutOf(numbers);
  const program = ppoProgram(shape, 2 * STEPS, PPO_DEFAULTS);
  const results = runReference(gradientsOf(program), { ...parameters, ...experience });
  // The divergence is of the second order, so that float32 errors vanish in it.
  expect(results["approximate_kl"]?.[0]).toBeCloseTo(0, 9);
  expect(new Set(experience.log_probability).size).toBeGreaterThan(1);
});

test("rollout: a choice is drawn with its probability", async () => {
  const draws = [0.1, 0.19, 0.21, 0.69, 0.71, 0.999];
  const shape = { ...policy, actions: 3 };
  const worlds = new VectorEnvironment(
    [counter()],
    () => 0,
    () => undefined,
  );
  const logs = Float32Array.of(0.2, 0.5, 0.3).map(Math.log);
  const forward = {
    run: async () => ({ head: logs, value: Float32Array.of(0) }),
    close: async () => undefined,
  };
  const { action, log_probability } = await collectRollout(
    {
      policy: shape,
      forward,
      worlds,
      bootstrapTruncated: false,
      normalizer: new ExperienceNormalizer(worlds, PLAIN, {}),
      steps: draws.length,
      gamma: GAMMA,
      lambda: 0,
      random: () => draws.shift() ?? 0,
    },
    {},
  );
  expect([...action]).toEqual([0, 0, 1, 1, 2, 2]);
  expect([...log_probability]).toEqual([...action].map((choice) => logs[choice]));
});
