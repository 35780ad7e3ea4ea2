import { expect, test } from "vitest";
import { acrobot } from "./acrobot.ts";
import { cartPole } from "./cart-pole.ts";
import type { Environment } from "./environment.ts";
import { ENVIRONMENTS } from "./environments.ts";
import { mountainCar } from "./mountain-car.ts";
import { pendulum } from "./pendulum.ts";
import { VectorEnvironment } from "./vector-environment.ts";

// Single steps from given states, computed by the equations in Gymnasium's sources.

const PI = Math.PI;

function stepFrom(world: Environment, state: readonly number[], action: number | Float32Array) {
  const observation = new Float32Array(world.observations);
  world.restore?.(state);
  const outcome = world.step(action, observation);
  return { outcome, observation, state: world.snapshot?.() ?? [] };
}

function expectClose(given: ArrayLike<number>, expected: readonly number[]): void {
  expect(given).toHaveLength(expected.length);
  for (const [i, value] of expected.entries()) expect(given[i]).toBeCloseTo(value, 6);
}

test.each([
  [[0.3, -0.7, 0.15, 1.3], 0, [0.286, -0.8966732864, 0.176, 1.6356320971]],
  [[-1, 0.4, -0.1, -0.9], 1, [-0.992, 0.5963244891, -0.118, -1.2223665511]],
])("CartPole: a step from %j by action %i is Gymnasium's", (state, action, expected) => {
  const step = stepFrom(cartPole(), state, action);
  expectClose(step.state, expected);
  expectClose(step.observation, expected);
  expect(step.outcome).toEqual({ reward: 1, terminated: false });
});

const TWELVE_DEGREES = (12 * 2 * PI) / 360;
test.each([
  [[2.4, 0, 0, 0], false],
  [[2.41, 0, 0, 0], true],
  [[-2.4, 0, 0, 0], false],
  [[-2.41, 0, 0, 0], true],
  [[0, 0, TWELVE_DEGREES, 0], false],
  [[0, 0, TWELVE_DEGREES + 0.001, 0], true],
  [[0, 0, -TWELVE_DEGREES - 0.001, 0], true],
])("CartPole: ends beyond 2.4 units or 12 degrees: %j %s", (state, terminated) => {
  expect(stepFrom(cartPole(), state, 1).outcome).toEqual({ reward: 1, terminated });
});

test.each([
  [[0.4, -0.9, 1.1, -2.3], 2, [0.5406638096, -1.2015155515, 0.2951851413, -0.7089836068]],
  [[-2.9, 1.7, -3.5, 6.1], 0, [2.7166988935, 2.86488187, -3.3498193532, 5.7887086151]],
  [[3.1, 3, 12.5, 28.2], 1, [1.2832915779, 2.3373794761, -4 * PI, 9 * PI]],
])("Acrobot: a step from %j by action %i is Gymnasium's", (state, action, expected) => {
  const step = stepFrom(acrobot(), state, action);
  expectClose(step.state, expected);
  const [a = 0, b = 0, ...speeds] = expected;
  const angles = [a, b].flatMap((angle) => [Math.cos(angle), Math.sin(angle)]);
  // float32 keeps 7 digits of a speed of 28.
  for (const [i, value] of [...angles, ...speeds].entries()) {
    expect(step.observation[i]).toBeCloseTo(value, 5);
  }
  expect(step.outcome).toEqual({ reward: -1, terminated: false });
});

test("Acrobot: ends without a penalty where the tip is one link above the base", () => {
  expect(stepFrom(acrobot(), [PI, 0, 0, 0], 1).outcome).toEqual({ reward: 0, terminated: true });
  const level = stepFrom(acrobot(), [PI / 2, PI / 2, 0, 0], 1);
  expect(level.outcome).toEqual({ reward: -1, terminated: false });
});

test.each([
  [[-0.5, 0.01], 2, [-0.489176843, 0.010823157], false],
  [[-0.3, -0.02], 0, [-0.3225540249, -0.0225540249], false],
  // At the left wall it stops.
  [[-1.19, -0.05], 0, [-1.2, 0], false],
  [[0.55, 0.069], 2, [0.6, 0.07], true],
  [[0.2, 0.0699], 2, [0.268836661, 0.068836661], false],
  [[0.48, 0.05], 1, [0.5296739407, 0.0496739407], true],
  [[0.51, -0.03], 0, [0.4788980375, -0.0311019625], false],
  // Beyond the goal, but on its way back.
  [[0.55, -0.01], 1, [0.5401978022, -0.0098021978], false],
])("MountainCar: a step from %j by action %i", (state, action, expected, terminated) => {
  const step = stepFrom(mountainCar(), state, action);
  expectClose(step.state, expected);
  expectClose(step.observation, expected);
  expect(step.outcome).toEqual({ reward: -1, terminated });
});

test.each([
  [[2.5, 1.2], 1.5, [2.5936927054, 1.8738541081], -6.39625],
  // Torque and speed are clipped, and the cost is of the angle within a half turn.
  [[-4, -3], -5, [-4.1366199064, -2.7323981285], -6.1169351467],
  [[1.4, 7.9], 2, [1.8, 8], -8.205],
  [[-1.4, -7.9], -2, [-1.8, -8], -8.205],
])("Pendulum: a step from %j by torque %d is Gymnasium's", (state, torque, expected, reward) => {
  const step = stepFrom(pendulum(), state, Float32Array.of(torque));
  expectClose(step.state, expected);
  const [angle = 0, speed = 0] = expected;
  expectClose(step.observation, [Math.cos(angle), Math.sin(angle), speed]);
  expect(step.outcome.reward).toBeCloseTo(reward, 6);
  expect(stepFrom(pendulum(), state, torque).state).toEqual(step.state);
});

test.each([
  [cartPole, [-0.05, -0.05, -0.05, -0.05], [0.05, 0.05, 0.05, 0.05], 500],
  [acrobot, [-0.1, -0.1, -0.1, -0.1], [0.1, 0.1, 0.1, 0.1], 500],
  [mountainCar, [-0.6, 0], [-0.4, 0], 200],
  [pendulum, [-PI, -1], [PI, 1], 200],
])(
  "environment %#: begins within Gymnasium's bounds, and has its limit",
  (make, low, high, max) => {
    const world = make();
    expect(world.snapshot?.()).toEqual(low.map(() => 0));
    for (const [draw, bound] of [
      [0, low],
      [1, high],
    ] as const) {
      world.reset(() => draw, new Float32Array(world.observations));
      expectClose(world.snapshot?.() ?? [], bound);
    }
    expect(world.maxSteps).toBe(max);
  },
);

test("vector environment: the greatest reward is absolute, of all worlds and steps", () => {
  const worlds = [pendulum(), pendulum()];
  const vector = new VectorEnvironment(
    worlds,
    () => 0.5,
    () => undefined,
  );
  worlds[1]?.restore?.([PI / 2, 0]);
  vector.step(Float32Array.of(0, 0));
  const greatest = (PI / 2) ** 2;
  expect(vector.greatestReward).toBeCloseTo(greatest, 6);
  worlds[1]?.restore?.([0, 0]);
  vector.step(Float32Array.of(0, 0));
  expect(vector.greatestReward).toBeCloseTo(greatest, 6);
});

test("environments: each is found by its name, and is another at each call", () => {
  const names = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"];
  expect([...ENVIRONMENTS.keys()]).toEqual(names);
  for (const [name, make] of ENVIRONMENTS) {
    expect(make().name).toBe(name);
    expect(make()).not.toBe(make());
  }
});
