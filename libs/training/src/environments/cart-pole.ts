import type { Random } from "@heddle/base/random";
import type { Environment, StepOutcome } from "./environment.ts";

const GRAVITY = 9.8;
const CART_MASS = 1;
const POLE_MASS = 0.1;
const HALF_LENGTH = 0.5;
const FORCE = 10;
const STEP_SECONDS = 0.02;
const POSITION_LIMIT = 2.4;
const ANGLE_LIMIT = (12 * 2 * Math.PI) / 360;

/**
 * A pole on a cart (Barto, Sutton and Anderson, 1983), with Gymnasium's CartPole-v1 constants.
 *
 * - Action: push left (0) or right (1).
 * - Reward: 1 for each step until 12 degrees, 2.4 units or 500 steps.
 * - Observation: position, velocity, angle, angular velocity.
 */
export function cartPole(): Environment {
  let [x, speed, angle, turn] = [0, 0, 0, 0];
  const write = (observation: Float32Array) => observation.set([x, speed, angle, turn]);
  return {
    name: "CartPole-v1",
    observations: 4,
    actions: 2,
    continuous: false,
    maxSteps: 500,
    reset: (random: Random, observation: Float32Array) => {
      const small = () => random() * 0.1 - 0.05;
      [x, speed, angle, turn] = [small(), small(), small(), small()];
      write(observation);
    },
    snapshot: () => [x, speed, angle, turn],
    restore: (numbers) => {
      [x = 0, speed = 0, angle = 0, turn = 0] = numbers;
    },
    step: (action, observation): StepOutcome => {
      const push = action === 1 ? FORCE : -FORCE;
      const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
      const mass = CART_MASS + POLE_MASS;
      const lever = POLE_MASS * HALF_LENGTH;
      const shared = (push + lever * turn * turn * sine) / mass;
      const resistance = HALF_LENGTH * (4 / 3 - (POLE_MASS * cosine * cosine) / mass);
      const turning = (GRAVITY * sine - cosine * shared) / resistance;
      const acceleration = shared - (lever * turning * cosine) / mass;
      x += STEP_SECONDS * speed;
      speed += STEP_SECONDS * acceleration;
      angle += STEP_SECONDS * turn;
      turn += STEP_SECONDS * turning;
      write(observation);
      const terminated = Math.abs(x) > POSITION_LIMIT || Math.abs(angle) > ANGLE_LIMIT;
      return { reward: 1, terminated };
    },
  };
}
