// holds: train-gradients

import { seededRandom } from "@heddle/base/random";
import { cartPole } from "@heddle/training/environments/cart-pole";
import { initialParameters } from "@heddle/training/initialize";
import {
  languageModelParameters,
  languageModelProgram,
} from "@heddle/training/language-model/language-model";
import { ADAM } from "@heddle/training/optimizers/optimizer";
import type { ParameterClient } from "@heddle/training/parameter-client";
import { actorCriticParameters } from "@heddle/training/ppo/actor-critic";
import { PPO_DEFAULTS } from "@heddle/training/ppo/ppo-config";
import { policyFor, runPpoWorker } from "@heddle/training/ppo/ppo-worker";
import { supervisedProgram } from "@heddle/training/supervised/supervised-program";
import { rowBatches, textBatches } from "@heddle/training/weave/batches";
import type { OuterOptimizer } from "@heddle/training/weave/outer-optimizer";
import { applyOuterStep } from "@heddle/training/weave/testing/outer-step";
import { runWeaveWorker } from "@heddle/training/weave/weave-worker";
import { expect, test } from "vitest";
import { onnxBackend } from "./onnx-backend.ts";

const backend = onnxBackend({ device: "cpu", threads: 1 });
const signal = new AbortController().signal;

/** One server in this process for one worker: each part is an update at once. */
function soleServer(
  initial: Readonly<Record<string, Float32Array>>,
  outer: OuterOptimizer,
): ParameterClient {
  const held = Object.entries(initial).map(([name, data]) => ({
    name,
    data: data.slice(),
    velocity: new Float32Array(data.length),
  }));
  let version = 0;
  return {
    pull: (into) => {
      for (const { name, data } of held) into[name]?.set(data);
      return Promise.resolve(version);
    },
    push: (part) => {
      for (const { name, data, velocity } of held) {
        applyOuterStep(outer, data, velocity, part[name] ?? new Float32Array(data.length));
      }
      version++;
      return Promise.resolve();
    },
  };
}

const AVERAGE: OuterOptimizer = { learningRate: 1, momentum: 0 };

test("PPO: on CartPole the return passes 150 within 40,000 steps, on two seeds", async () => {
  for (const seed of [1, 2]) {
    const random = seededRandom(seed);
    const specs = actorCriticParameters(policyFor(cartPole(), 64));
    const parameters = initialParameters(specs, random);
    const returns: number[] = [];
    await runPpoWorker({
      backend,
      signal,
      parameters,
      workers: 1,
      done: 0,
      makeEnvironment: cartPole,
      draws: () => random,
      config: { ...PPO_DEFAULTS, total_timesteps: 40_000 },
      client: soleServer(parameters, AVERAGE),
      report: ({ episodeReturn }) => {
        returns.push(episodeReturn ?? 0);
        return Promise.resolve("continue" as const);
      },
    });
    expect(returns).toHaveLength(78);
    expect(Math.max(...returns), `seed ${seed}`).toBeGreaterThan(150);
  }
});

test("weave: a language model memorizes a text by local steps and outer Nesterov", async () => {
  const shape = {
    vocab_size: 128,
    context_length: 16,
    hidden_size: 32,
    layers: 1,
    heads: 2,
    kv_heads: 1,
    intermediate_size: 48,
    rope_theta: 10_000,
    norm_epsilon: 1e-5,
  };
  const random = seededRandom(3);
  const text = Buffer.from("the heddle guides the warp; the shuttle carries the weft. ".repeat(4));
  const parameters = initialParameters(languageModelParameters(shape), random);
  const losses: number[] = [];
  await runWeaveWorker({
    backend,
    signal,
    parameters,
    batch: 8,
    done: 0,
    optimizer: ADAM,
    program: languageModelProgram(shape, 8),
    config: {
      total_steps: 240,
      local_steps: 8,
      learning_rate: 1e-2,
      warmup_steps: 8,
      max_grad_norm: 1,
    },
    client: soleServer(parameters, { learningRate: 0.7, momentum: 0.5 }),
    batches: textBatches(text, { batch: 8, length: 16 }, random),
    report: ({ loss }) => {
      losses.push(loss);
      return Promise.resolve();
    },
  });
  expect(losses).toHaveLength(30);
  expect(losses[0]).toBeGreaterThan(3);
  expect(losses.at(-1)).toBeLessThan(1);
});

test("divergence: training stops and names the step", async () => {
  const program = supervisedProgram({ features: 1, outputs: 1, task: "regression", hidden: [] }, 4);
  const random = seededRandom(4);
  const parameters = initialParameters(program.parameters, random);
  const rows = { features: new Float32Array(8).fill(1e20), target: new Float32Array(8), count: 8 };
  const run = runWeaveWorker({
    backend,
    signal,
    parameters,
    batch: 4,
    done: 0,
    program,
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    config: {
      total_steps: 10,
      local_steps: 5,
      learning_rate: 1,
      warmup_steps: 0,
      max_grad_norm: 1,
    },
    client: soleServer(parameters, AVERAGE),
    batches: rowBatches(rows, 4, random),
    report: () => Promise.resolve(),
  });
  await expect(run).rejects.toThrow(/the loss is (Infinity|NaN) at step 1: training has diverged/);
});
