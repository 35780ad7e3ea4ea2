// holds: train-normalizer

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { mountainCar } from "../environments/mountain-car.ts";
import { VectorEnvironment } from "../environments/vector-environment.ts";
import type { Executable } from "../executable.ts";
import { initialParameters, normal } from "../initialize.ts";
import { type Feeds, interpret } from "../reference/interpreter.ts";
import { actorCriticParameters } from "./actor-critic.ts";
import { ExperienceNormalizer, normalizationParameters } from "./experience-normalizer.ts";
import { policyForward, policyModel } from "./ppo-program.ts";
import { momentParameters, RunningMoments } from "./running-moments.ts";

const random = seededRandom(7);
const ON = { normalize_observations: true, normalize_rewards: true, gamma: 0.9 };

/** Two cars, and a normalizer of their experience. */
function cars(config: Partial<typeof ON>) {
  const chosen = { normalize_observations: false, normalize_rewards: false, gamma: 0.9, ...config };
  const worlds = new VectorEnvironment(
    [mountainCar(), mountainCar()],
    seededRandom(1),
    () => undefined,
  );
  const parameters = initialParameters(normalizationParameters(chosen, 2), random);
  return { worlds, parameters, normalizer: new ExperienceNormalizer(worlds, chosen, parameters) };
}

test("moments: batches give those of all rows; the prior weighs almost 0", () => {
  const rows = Float64Array.from({ length: 60 }, (_, i) => (i % 2) * 100 + normal(random));
  const moments = new RunningMoments(initialParameters(momentParameters("x", 2), random), "x");
  for (const [from, to] of [
    [0, 2],
    [2, 20],
    [20, 60],
  ]) {
    moments.add(rows.subarray(from, to));
  }
  const { mean, inverseDeviation } = moments.scale();
  for (const column of [0, 1]) {
    const own = rows.filter((_, i) => i % 2 === column);
    const middle = own.reduce((sum, x) => sum + x, 0) / 30;
    const variance = own.reduce((sum, x) => sum + (x - middle) ** 2, 0) / 30;
    expect(mean[column]).toBeCloseTo((middle * 30) / 30.0001, 9);
    const prior = (variance * 30 + 1e-4 + (middle ** 2 * 30 * 1e-4) / 30.0001) / 30.0001;
    expect(inverseDeviation[column]).toBeCloseTo(1 / Math.sqrt(prior + 1e-8), 9);
  }
});

test("moments: continue from those among the parameters", () => {
  const parameters = initialParameters(momentParameters("x", 1), random);
  const moments = new RunningMoments(parameters, "x");
  moments.add(Float64Array.of(3, 5));
  moments.keepIn(parameters);
  expect(parameters["x.count"]?.[0]).toBeCloseTo(2, 6);
  expect(parameters["x.mean"]?.[0]).toBeCloseTo(4, 3);
  const again = new RunningMoments(parameters, "x");
  again.add(Float64Array.of(10));
  expect(again.scale().mean[0]).toBeCloseTo(6, 3);
});

test("rewards: divided by the return's deviation, which restarts with an episode", () => {
  const { normalizer } = cars({ normalize_rewards: true });
  const history: number[] = [];
  const sums = [0, 0];
  for (const [one, other, done] of [
    [1, -1, 0],
    [2, 0.5, 1],
    [-3, 1, 0],
  ] as const) {
    const rewards = Float32Array.of(one, other);
    normalizer.scaleRewards(rewards, Float32Array.of(done, 0));
    sums[0] = (sums[0] ?? 0) * 0.9 + one;
    sums[1] = (sums[1] ?? 0) * 0.9 + other;
    history.push(...sums);
    const middle = history.reduce((sum, x) => sum + x, 0) / history.length;
    const variance = history.reduce((sum, x) => sum + (x - middle) ** 2, 0) / history.length;
    expect(rewards[0]).toBeCloseTo(one / Math.sqrt(variance), 3);
    expect(rewards[1]).toBeCloseTo(other / Math.sqrt(variance), 3);
    if (done === 1) sums[0] = 0;
    expect([...normalizer.discounted]).toEqual(sums);
  }
});

test("normalization: numbers are clipped at 10", () => {
  const { worlds, normalizer } = cars(ON);
  for (let step = 0; step < 40; step++) normalizer.observe();
  worlds.observations.set([1e3, -1e3, 0, 0]);
  normalizer.refresh();
  expect([...normalizer.observations.subarray(0, 2)]).toEqual([10, -10]);
  for (let step = 0; step < 20; step++) {
    normalizer.scaleRewards(Float32Array.of(0, 0), Float32Array.of(0, 0));
  }
  const rewards = Float32Array.of(1e6, 0);
  for (let step = 0; step < 200; step++) {
    normalizer.scaleRewards(Float32Array.of(step % 2, 0), Float32Array.of(1, 1));
  }
  normalizer.scaleRewards(rewards, Float32Array.of(0, 0));
  expect(rewards[0]).toBe(10);
  expect(normalizer.greatestReward).toBe(10);
});

test("normalization: where it is off, numbers pass unchanged and nothing is kept", () => {
  const { worlds, normalizer, parameters } = cars({});
  const rewards = Float32Array.of(-1, -1);
  normalizer.beginRollout();
  normalizer.observe();
  normalizer.scaleRewards(rewards, Float32Array.of(0, 0));
  normalizer.endRollout();
  expect(normalizer.observations).toBe(worlds.observations);
  expect([...rewards]).toEqual([-1, -1]);
  expect([parameters, normalizer.discounted]).toEqual([{}, new Float64Array()]);
});

test("exported policy: takes raw observations, answers as the trained one", () => {
  const policy = { observations: 2, actions: 3, continuous: false, hidden: 8 };
  const { worlds, normalizer, parameters: moments } = cars(ON);
  const specs = actorCriticParameters(policy);
  normalizer.beginRollout();
  for (let step = 0; step < 30; step++) {
    normalizer.observe();
    worlds.step(Int32Array.of(2, 0));
  }
  normalizer.endRollout();
  normalizer.refresh();
  const parameters = { ...initialParameters(specs, random), ...moments };
  const raw = { observation: worlds.observations };
  const answered = evaluated(policyModel(policy, parameters, 2), raw);
  const seen = { ...parameters, observation: normalizer.observations };
  const trained = evaluated(policyForward(policy, 2), seen);
  const unscaled = evaluated(policyForward(policy, 2), { ...parameters, ...raw });
  expect(answered).toHaveLength(8);
  for (const [i, number] of answered.entries()) expect(number).toBeCloseTo(trained[i] ?? NaN, 4);
  expect(Math.abs((unscaled[7] ?? 0) - (answered[7] ?? 0))).toBeGreaterThan(1e-2);
});

/** All numbers of `head`, then those of `value`. */
function evaluated({ outputs }: Executable, feeds: Feeds): number[] {
  return interpret(
    outputs.map(({ value }) => value),
    feeds,
  ).flatMap((numbers) => [...numbers]);
}
