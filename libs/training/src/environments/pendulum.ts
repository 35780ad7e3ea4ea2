import type { Random } from "@heddle/base/random";
import type { Environment, StepOutcome } from "./environment.ts";

const MAX_SPEED = 8;
const MAX_TORQUE = 2;
const STEP_SECONDS = 0.05;
const GRAVITY = 10;

/**
 * A pendulum to swing up and hold, with Gymnasium's Pendulum-v1 constants. Torque: clipped to
 * -2..2; reward: -(angle^2 + 0.1 speed^2 + 0.001 torque^2); 200 steps. Observation: cosine and sine
 * of the angle (0 is up), angular velocity.
 */
export function pendulum(): Environment {
  let [angle, speed] = [0, 0];
  const write = (observation: Float32Array) =>
    observation.set([Math.cos(angle), Math.sin(angle), speed]);
  return {
    name: "Pendulum-v1",
    observations: 3,
    actions: 1,
    continuous: true,
    maxSteps: 200,
    reset: (random: Random, observation: Float32Array) => {
      [angle, speed] = [(2 * random() - 1) * Math.PI, 2 * random() - 1];
      write(observation);
    },
    snapshot: () => [angle, speed],
    restore: (numbers) => {
      [angle = 0, speed = 0] = numbers;
    },
    step: (action, observation): StepOutcome => {
      const given = typeof action === "number" ? action : (action[0] ?? 0);
      const torque = Math.min(MAX_TORQUE, Math.max(-MAX_TORQUE, given));
      const cost = wrapped(angle) ** 2 + 0.1 * speed ** 2 + 0.001 * torque ** 2;
      const pull = 1.5 * GRAVITY * Math.sin(angle) + 3 * torque;
      speed = Math.min(MAX_SPEED, Math.max(-MAX_SPEED, speed + pull * STEP_SECONDS));
      angle += speed * STEP_SECONDS;
      write(observation);
      return { reward: -cost, terminated: false };
    },
  };
}

/** The same angle within -pi to pi. */
function wrapped(angle: number): number {
  const turn = 2 * Math.PI;
  return ((((angle + Math.PI) % turn) + turn) % turn) - Math.PI;
}
