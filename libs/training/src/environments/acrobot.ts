import type { Random } from "@heddle/base/random";
import type { Environment, StepOutcome } from "./environment.ts";

const STEP_SECONDS = 0.2;
const GRAVITY = 9.8;
/** The centre of mass of a link; both links have mass 1, length 1 and moment of inertia 1. */
const CENTRE = 0.5;
const INERTIA = 1;
const MAX_SPEEDS = [4 * Math.PI, 9 * Math.PI] as const;

type State = readonly [angle1: number, angle2: number, speed1: number, speed2: number];

/**
 * Two links, driven at the joint between them (Sutton, 1996; the equations of Sutton and Barto's
 * book), with Gymnasium's Acrobot-v1 constants.
 *
 * - Action: torque -1, 0 or 1.
 * - Reward: -1 for each step until the tip is one link above the base, at most 500.
 * - Observation: cosine and sine of both angles, both velocities.
 */
export function acrobot(): Environment {
  let state: State = [0, 0, 0, 0];
  const write = (observation: Float32Array) => {
    const [a, b, c, d] = state;
    observation.set([Math.cos(a), Math.sin(a), Math.cos(b), Math.sin(b), c, d]);
  };
  return {
    name: "Acrobot-v1",
    observations: 6,
    actions: 3,
    continuous: false,
    maxSteps: 500,
    reset: (random: Random, observation: Float32Array) => {
      const small = () => random() * 0.2 - 0.1;
      state = [small(), small(), small(), small()];
      write(observation);
    },
    snapshot: () => state,
    restore: ([a = 0, b = 0, c = 0, d = 0]) => {
      state = [a, b, c, d];
    },
    step: (action, observation): StepOutcome => {
      const [a, b, c, d] = rungeKutta(state, Number(action) - 1);
      state = [wrap(a), wrap(b), bound(c, MAX_SPEEDS[0]), bound(d, MAX_SPEEDS[1])];
      write(observation);
      const terminated = -Math.cos(state[0]) - Math.cos(state[1] + state[0]) > 1;
      return { reward: terminated ? 0 : -1, terminated };
    },
  };
}

/** One step of the classical fourth-order Runge-Kutta method. */
function rungeKutta(state: State, torque: number): State {
  const k1 = derivative(state, torque);
  const k2 = derivative(moved(state, k1, STEP_SECONDS / 2), torque);
  const k3 = derivative(moved(state, k2, STEP_SECONDS / 2), torque);
  const k4 = derivative(moved(state, k3, STEP_SECONDS), torque);
  const mean = k1.map((v, i) => (v + 2 * (k2[i] ?? 0) + 2 * (k3[i] ?? 0) + (k4[i] ?? 0)) / 6);
  return moved(state, mean, STEP_SECONDS);
}

function moved(state: State, slope: readonly number[], seconds: number): State {
  const at = (i: 0 | 1 | 2 | 3) => state[i] + seconds * (slope[i] ?? 0);
  return [at(0), at(1), at(2), at(3)];
}

function derivative([a1, a2, v1, v2]: State, torque: number): State {
  const [cosine, sine] = [Math.cos(a2), Math.sin(a2)];
  const d1 = CENTRE ** 2 + (1 + CENTRE ** 2 + 2 * CENTRE * cosine) + 2 * INERTIA;
  const d2 = CENTRE ** 2 + CENTRE * cosine + INERTIA;
  const phi2 = CENTRE * GRAVITY * Math.cos(a1 + a2 - Math.PI / 2);
  const phi1 =
    -CENTRE * v2 ** 2 * sine -
    2 * CENTRE * v2 * v1 * sine +
    (CENTRE + 1) * GRAVITY * Math.cos(a1 - Math.PI / 2) +
    phi2;
  const drive = torque + (d2 / d1) * phi1 - CENTRE * v1 ** 2 * sine - phi2;
  const turn2 = drive / (CENTRE ** 2 + INERTIA - d2 ** 2 / d1);
  return [v1, v2, -(d2 * turn2 + phi1) / d1, turn2];
}

function wrap(angle: number): number {
  const turn = 2 * Math.PI;
  return angle - turn * Math.floor((angle + Math.PI) / turn);
}

function bound(value: number, limit: number): number {
  return Math.min(limit, Math.max(-limit, value));
}
