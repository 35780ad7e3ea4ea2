// holds: train-advantages

import { seededRandom } from "@heddle/base/random";
import { describe, expect, it, test } from "vitest";
import { acrobot } from "../environments/acrobot.ts";
import { cartPole } from "../environments/cart-pole.ts";
import type { Environment, StepOutcome } from "../environments/environment.ts";
import { mountainCar } from "../environments/mountain-car.ts";
import { pendulum } from "../environments/pendulum.ts";
import { VectorEnvironment } from "../environments/vector-environment.ts";
import { divergenceOf } from "./divergence.ts";
import { keepExperience, resumeExperience } from "./experience-state.ts";
import { PPO_DEFAULTS } from "./ppo-config.ts";
import { ppoIterations } from "./ppo-worker.ts";

/** A random number in the middle: no displacement. */
const none = () => 0.5;

describe("environments", () => {
  it("CartPole: one push from rest follows the published equations", () => {
    const world = cartPole();
    const seen = new Float32Array(4);
    world.reset(none, seen);
    expect([...seen]).toEqual([0, 0, 0, 0]);
    world.step(1, seen);
    // a = F / m - lever * turning / m; turning = -(F / m) / (l (4/3 - mp / m)).
    const shared = 10 / 1.1;
    const turning = -shared / (0.5 * (4 / 3 - 0.1 / 1.1));
    expect(seen[1]).toBeCloseTo(0.02 * (shared - (0.05 * turning) / 1.1), 6);
    expect(seen[3]).toBeCloseTo(0.02 * turning, 6);
  });

  it("CartPole: pushed one way the episode ends within 12 steps", () => {
    const world = cartPole();
    const seen = new Float32Array(4);
    world.reset(none, seen);
    let steps = 1;
    while (!world.step(1, seen).terminated) steps++;
    expect(steps).toBeGreaterThanOrEqual(8);
    expect(steps).toBeLessThanOrEqual(12);
  });

  it("MountainCar: cannot climb by full power, and can by swinging", () => {
    const climb = (policy: (seen: Float32Array) => number) => {
      const world = mountainCar();
      const seen = new Float32Array(2);
      world.reset(none, seen);
      for (let step = 0; step < 200; step++) {
        if (world.step(policy(seen), seen).terminated) return true;
      }
      return false;
    };
    expect(climb(() => 2)).toBe(false);
    expect(climb((seen) => ((seen[1] ?? 0) < 0 ? 0 : 2))).toBe(true);
  });

  it("Pendulum: hanging costs pi^2, standing still costs nothing", () => {
    const world = pendulum();
    const seen = new Float32Array(3);
    world.reset(() => 1, seen);
    expect(world.step(Float32Array.of(0), seen).reward).toBeCloseTo(-(Math.PI ** 2 + 0.1), 5);
    world.reset(none, seen);
    expect(world.step(Float32Array.of(0), seen).reward).toBeCloseTo(0, 9);
  });

  it("Acrobot: at rest it stays at rest, and keeps its energy without torque", () => {
    const world = acrobot();
    const seen = new Float32Array(6);
    world.reset(none, seen);
    world.step(1, seen);
    for (const [i, value] of [1, 0, 1, 0, 0, 0].entries()) expect(seen[i]).toBeCloseTo(value, 12);
    const energy = () => {
      const [cosineA = 0, sineA = 0, cosineB = 0, sineB = 0, first = 0, second = 0] = seen;
      const both = first + second;
      const tip = first * first + 0.25 * both * both + first * both * cosineB;
      const cosineAB = cosineA * cosineB - sineA * sineB;
      const moving = 0.5 * (1.25 * first * first + both * both + tip);
      return moving - 9.8 * (1.5 * cosineA + 0.5 * cosineAB);
    };
    world.reset(() => 0.9, seen);
    const before = energy();
    for (let step = 0; step < 20; step++) world.step(1, seen);
    expect(energy()).toBeCloseTo(before, 3);
  });
});

test("episodes: end by themselves or at their limit, then the next one begins", () => {
  const endless: Environment = { ...pendulum(), maxSteps: 3 };
  const ended: number[] = [];
  const worlds = new VectorEnvironment([cartPole(), cartPole()], seededRandom(1), (episode) =>
    ended.push(episode.length),
  );
  for (let step = 0; step < 60; step++) worlds.step(Int32Array.of(1, 1));
  expect(ended.length).toBeGreaterThan(8);
  expect(ended.every((length) => length <= 13)).toBe(true);
  const cut: number[] = [];
  const limited = new VectorEnvironment([endless], seededRandom(1), (one) => cut.push(one.length));
  for (let step = 0; step < 7; step++) limited.step(Float32Array.of(0));
  expect(cut).toEqual([3, 3]);
});

test("episodes: a cut has its last observation, a termination has none", () => {
  /**
   * Its observation is the number of steps; the third step ends the episode, cuts it off, or both.
   */
  const counter = (third: Partial<StepOutcome>, maxSteps = 100): Environment => {
    let step = 0;
    return {
      name: "counter",
      observations: 1,
      actions: 2,
      continuous: false,
      maxSteps,
      reset: (_, observation) => {
        step = 0;
        observation[0] = step;
      },
      step: (_, observation) => {
        observation[0] = ++step;
        return { reward: 1, terminated: false, ...(step === 3 ? third : {}) };
      },
    };
  };
  const worlds = new VectorEnvironment(
    [
      counter({ terminated: true }),
      counter({ truncated: true }),
      counter({ terminated: true, truncated: true }),
      counter({}, 3),
      counter({ terminated: true }, 3),
    ],
    none,
    () => undefined,
  );
  const still = new Int32Array(5);
  expect(worlds.step(still).truncations).toEqual([]);
  worlds.step(still);
  const { dones, truncations } = worlds.step(still);
  expect([...dones]).toEqual([1, 1, 1, 1, 1]);
  expect(truncations).toEqual([
    { environment: 1, observation: Float32Array.of(3) },
    { environment: 3, observation: Float32Array.of(3) },
  ]);
  expect([...worlds.observations]).toEqual([0, 0, 0, 0, 0]);
});

test.each([cartPole, acrobot, mountainCar, pendulum])(
  "snapshot: environment %# continues bit by bit",
  (make) => {
    const { continuous } = make();
    const ended: number[] = [];
    const begin = (seed: number) =>
      new VectorEnvironment([make(), make()], seededRandom(seed), ({ length }) =>
        ended.push(length),
      );
    const act = (step: number) =>
      continuous ? Float32Array.of(Math.sin(step), 1) : Int32Array.of(step % 2, 1);
    const [first, second] = [begin(1), begin(2)];
    for (let step = 0; step < 7; step++) first.step(act(step));
    const discounted = Float64Array.of(0.3, 1 / 7);
    const kept = { worlds: second, returns: [4], discounted: new Float64Array(2) };
    const optimizer = { step: Float32Array.of(3) };
    const state = {
      ...optimizer,
      ...keepExperience({ worlds: first, returns: [0.1, 1 / 3], discounted }),
    };
    expect(resumeExperience(kept, state)).toEqual(optimizer);
    expect([kept.returns, kept.discounted]).toEqual([[0.1, 1 / 3], discounted]);
    expect(second.observations).toEqual(first.observations);
    for (let step = 0; step < 5; step++) {
      const [one, other] = [first.step(act(step)), second.step(act(step))];
      expect(other).toEqual(one);
      // A new episode depends on random numbers, which are not part of the environment.
      if (one.dones.includes(1)) break;
      expect(second.snapshot()).toEqual(first.snapshot());
    }
  },
);

test("snapshot: environments without one, or different ones, begin new episodes", () => {
  const nothing = { returns: [], discounted: new Float64Array() };
  const { snapshot: _, ...without } = cartPole();
  const plain = new VectorEnvironment([without], seededRandom(1), () => undefined);
  expect(keepExperience({ worlds: plain, ...nothing })).toEqual({});
  const one = new VectorEnvironment([cartPole()], seededRandom(1), () => undefined);
  const two = new VectorEnvironment([cartPole(), cartPole()], seededRandom(1), () => undefined);
  const before = one.snapshot();
  const kept = { ...nothing, worlds: one, returns: [7] };
  expect(resumeExperience(kept, keepExperience({ worlds: two, ...nothing }))).toBeUndefined();
  expect([one.snapshot(), kept.returns]).toEqual([before, [7]]);
});

test("minibatches: a batch that does not divide is refused with both numbers", () => {
  const config = { ...PPO_DEFAULTS, num_minibatches: 7 };
  expect(() => ppoIterations(config, 1)).toThrow(/= 512 must be a multiple of num_minibatches 7/);
  const few = { ...PPO_DEFAULTS, total_timesteps: 1023 };
  expect(() => ppoIterations(few, 2)).toThrow(/1023 are less than one batch, 1024/);
  expect(ppoIterations(PPO_DEFAULTS, 2)).toBe(Math.floor(500_000 / 1024));
});

test.each([
  [{}, {}, undefined],
  // The error of an untrained critic is not a divergence, however small the rewards are.
  [{ value_loss: 50 }, { greatestReward: 1e-9 }, undefined],
  [{ value_loss: 1e9 }, { greatestReward: 1e4 }, undefined],
  [{ value_loss: 1e11 }, {}, /values are wrong by 447000, and no return can be above 100/],
  [{ approximate_kl: 2e4 }, {}, /the policy moved by 20000 nats in one update/],
  [{ approximate_kl: Number.NaN }, {}, /moved by NaN/],
  [{}, { parameters: { a: Float32Array.of(1, Number.NaN) } }, /the parameters a hold NaN/],
])("divergence: an update with %j in %j: %s", (metrics, world, why) => {
  const usual = { parameters: { a: Float32Array.of(1) }, greatestReward: 1, horizon: 100 };
  const reason = divergenceOf({ ...usual, metrics, ...world });
  if (why) expect(reason).toMatch(why);
  else expect(reason).toBeUndefined();
});
