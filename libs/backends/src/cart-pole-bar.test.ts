// holds: train-bars

import { seededRandom } from "@heddle/base/random";
import { cartPole } from "@heddle/training/environments/cart-pole";
import { initialParameters } from "@heddle/training/initialize";
import type { ParameterClient, Parameters } from "@heddle/training/parameter-client";
import { actorCriticParameters } from "@heddle/training/ppo/actor-critic";
import { PPO_DEFAULTS } from "@heddle/training/ppo/ppo-config";
import { policyFor, runPpoWorker } from "@heddle/training/ppo/ppo-worker";
import { expect, test } from "vitest";
import { onnxBackend } from "./onnx-backend.ts";

/** A server of one worker: the parameters move by the worker's displacement. */
function ownServer(held: Parameters): ParameterClient {
  let version = 0;
  const server = Object.fromEntries(
    Object.entries(held).map(([name, data]) => [name, data.slice()]),
  );
  return {
    pull: async (into) => {
      for (const [name, data] of Object.entries(server)) into[name]?.set(data);
      return version;
    },
    push: async (part) => {
      for (const [name, data] of Object.entries(server)) {
        for (const [i, moved] of (part[name] ?? new Float32Array()).entries()) {
          data[i] = (data[i] ?? 0) - moved;
        }
      }
      version++;
    },
  };
}

/** The values of examples/cartpole.yaml; the schedule is that of all its 300,000 steps. */
const EXAMPLE = {
  num_envs: 8,
  num_steps: 64,
  update_epochs: 8,
  learning_rate: 1e-3,
  gamma: 0.98,
  gae_lambda: 0.9,
  ent_coef: 0,
  total_timesteps: 300_000,
};
/** Five times what seed 1 takes: processors round differently, and runs diverge. */
const MOST_STEPS = 120_000;
const SEED = 1;

test("PPO: passes a mean return of 195 over 100 CartPole episodes, from a fixed seed", async () => {
  const random = seededRandom(SEED);
  const parameters = initialParameters(actorCriticParameters(policyFor(cartPole(), 64)), random);
  let best = { mean: 0, steps: 0 };
  const before = process.cpuUsage();
  await runPpoWorker({
    parameters,
    workers: 1,
    done: 0,
    makeEnvironment: cartPole,
    draws: () => random,
    backend: onnxBackend({ device: "cpu", threads: 1 }),
    signal: new AbortController().signal,
    config: { ...PPO_DEFAULTS, ...EXAMPLE },
    client: ownServer(parameters),
    report: async ({ episodeReturn = 0, episodes, timesteps }) => {
      if (episodes >= 100 && episodeReturn > best.mean) {
        best = { mean: episodeReturn, steps: timesteps };
      }
      return best.mean > 195 || timesteps >= MOST_STEPS ? "stop" : "continue";
    },
  });
  const { user, system } = process.cpuUsage(before);
  const cpuSeconds = ((user + system) / 1e6).toFixed(1);
  console.info(`seed ${SEED}: ${best.mean} at step ${best.steps}, ${cpuSeconds} s of CPU`);
  expect(best.mean).toBeGreaterThan(195);
});
