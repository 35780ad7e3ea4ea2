import type { Random } from "@heddle/base/random";
import type { Environment, StepOutcome } from "./environment.ts";

const [LEFT_WALL, RIGHT_WALL, GOAL] = [-1.2, 0.6, 0.5];
const MAX_SPEED = 0.07;
const FORCE = 0.001;
const GRAVITY = 0.0025;

/**
 * A weak car in a valley (Moore, 1990), with Gymnasium's MountainCar-v0 constants.
 *
 * - Action: push left (0), not at all (1) or right (2).
 * - Reward: -1 for each step until the right hill, at most 200.
 * - Observation: position, velocity.
 */
export function mountainCar(): Environment {
  let [position, speed] = [0, 0];
  const write = (observation: Float32Array) => observation.set([position, speed]);
  return {
    name: "MountainCar-v0",
    observations: 2,
    actions: 3,
    continuous: false,
    maxSteps: 200,
    reset: (random: Random, observation: Float32Array) => {
      [position, speed] = [-0.6 + 0.2 * random(), 0];
      write(observation);
    },
    snapshot: () => [position, speed],
    restore: (numbers) => {
      [position = 0, speed = 0] = numbers;
    },
    step: (action, observation): StepOutcome => {
      const push = (Number(action) - 1) * FORCE - Math.cos(3 * position) * GRAVITY;
      speed = Math.min(MAX_SPEED, Math.max(-MAX_SPEED, speed + push));
      position = Math.min(RIGHT_WALL, Math.max(LEFT_WALL, position + speed));
      if (position === LEFT_WALL && speed < 0) speed = 0;
      write(observation);
      return { reward: -1, terminated: position >= GOAL && speed >= 0 };
    },
  };
}
