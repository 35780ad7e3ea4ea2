// holds: train-torch

import { readFileSync } from "node:fs";
import { seededRandom } from "@heddle/base/random";
import { describe, expect, test } from "vitest";
import { cartPole } from "./environments/cart-pole.ts";
import { initialParameters } from "./initialize.ts";
import { elementCount } from "./ir/value.ts";
import { type LanguageModelShape, languageModelProgram } from "./language-model/language-model.ts";
import { type Optimizer, optimizerSlots } from "./optimizers/optimizer.ts";
import { estimateAdvantages } from "./ppo/advantages.ts";
import { PPO_DEFAULTS } from "./ppo/ppo-config.ts";
import { type PpoLoss, ppoProgram } from "./ppo/ppo-program.ts";
import { ppoParameters, runPpoWorker } from "./ppo/ppo-worker.ts";
import { referenceBackend, runReference } from "./reference/reference-backend.ts";
import { type SupervisedShape, supervisedProgram } from "./supervised/supervised-program.ts";
import { pattern } from "./testing/pattern.ts";
import {
  gradientName,
  gradientsOf,
  nextName,
  type StepOptions,
  stepOf,
  type TrainingProgram,
  zeroState,
} from "./training-program.ts";
import { outerServers } from "./weave/outer-optimizer.ts";
import { runWeaveWorker } from "./weave/weave-worker.ts";

// Values that PyTorch computed in float64, by tools/torch-reference.py. The oracle computes in float64
// too; some constants of the programs are float32.

type Numbers = readonly number[];

interface Reference {
  readonly optimizers: readonly {
    readonly name: string;
    readonly optimizer: Optimizer;
    readonly maxGradientNorm?: number;
    readonly rates: Numbers;
    readonly gradientNorms: Numbers;
    /** Indexed by step: both parameters, joined. */
    readonly after: readonly Numbers[];
  }[];
  readonly outer: readonly {
    readonly learningRate: number;
    readonly momentum: number;
    readonly after: readonly Numbers[];
  }[];
  readonly programs: readonly ProgramCase[];
  readonly advantages: {
    readonly steps: number;
    readonly environments: number;
    readonly gamma: number;
    readonly lambda: number;
    readonly dones: Numbers;
    readonly cutValues: Numbers;
    readonly advantages: Numbers;
    readonly returns: Numbers;
  };
  readonly schedules: {
    readonly weave: { rate: number; warmup: number; total: number; rates: Numbers };
    readonly ppo: { rate: number; rates: Numbers };
  };
}

interface ProgramCase {
  readonly kind: "supervised" | "ppo" | "language_model";
  readonly sizes: Readonly<Record<string, unknown>>;
  readonly batch: number;
  readonly loss: number;
  readonly metrics: Readonly<Record<string, number>>;
  readonly data: Readonly<Record<string, Numbers>>;
  readonly gradients: Readonly<Record<string, Numbers>>;
}

const path = new URL("testing/torch-reference.json", import.meta.url);
const reference = JSON.parse(readFileSync(path, "utf8")) as Reference;

/** The error of float32 constants in a float64 program; a wrong formula is off by far more. */
const MAX_ERROR = 2e-7;

function expectClose(given: ArrayLike<number> | undefined, expected: Numbers, what: string): void {
  expect(given, what).toHaveLength(expected.length);
  const size = Math.max(1e-3, Math.hypot(...expected));
  const difference = Math.hypot(...expected.map((value, i) => value - (given?.[i] ?? Number.NaN)));
  expect(difference / size, what).toBeLessThan(MAX_ERROR);
}

/** A program whose gradient is its data. */
function givenGradients(sizes: Readonly<Record<string, readonly number[]>>): TrainingProgram {
  const names = Object.keys(sizes);
  return {
    parameters: names.map((name) => ({ name, shape: sizes[name] ?? [], init: { kind: "zeros" } })),
    data: names.map((name) => ({ name: `slope.${name}`, shape: sizes[name] ?? [], type: "f32" })),
    build: (graph, inputs) => {
      const terms = names.map((name) => {
        const [parameter, slope] = [inputs[name], inputs[`slope.${name}`]];
        if (!parameter || !slope) throw new Error(`there is no ${name}`);
        return graph.sum(graph.mul(parameter, slope));
      });
      return { loss: terms.reduce((sum, term) => graph.add(sum, term)), metrics: {} };
    },
  };
}

type Feeds = Record<string, ArrayLike<number>>;

/** Takes steps with the given gradients; calls `check` after each. */
function takeSteps(
  program: TrainingProgram,
  options: StepOptions,
  initial: Feeds,
  steps: readonly { readonly rate: number; readonly slopes: Feeds }[],
  check: (step: number, results: Feeds) => void,
): void {
  const executable = stepOf(program, options);
  const kept: Feeds = { ...initial, ...zeroState(program, options.optimizer) };
  for (const [step, { rate, slopes }] of steps.entries()) {
    const results = runReference(executable, { ...kept, ...slopes, learning_rate: [rate] });
    for (const name of Object.keys(kept)) kept[name] = results[nextName(name)] ?? [];
    check(step, { ...results, ...kept });
  }
}

describe("reference: optimizers take PyTorch's steps", () => {
  const program = givenGradients({ a: [2, 3], b: [4] });

  test.each(reference.optimizers)("$name", (given) => {
    const { optimizer, maxGradientNorm, rates, gradientNorms, after } = given;
    const steps = rates.map((rate, step) => ({
      rate,
      slopes: { "slope.a": pattern(10 + 2 * step, 6), "slope.b": pattern(11 + 2 * step, 4) },
    }));
    const initial = { a: pattern(1, 6), b: pattern(2, 4) };
    expect.assertions(4 * steps.length);
    takeSteps(program, { optimizer, maxGradientNorm }, initial, steps, (step, results) => {
      const joined = [results["a"], results["b"]].flatMap((each) => [...Array.from(each ?? [])]);
      expectClose(joined, after[step] ?? [], `step ${step + 1}`);
      expectClose(results["gradient_norm"], [gradientNorms[step] ?? 0], "the norm");
    });
  });

  test.each(reference.outer)(
    "reference: DiLoCo's outer step, rate $learningRate, momentum $momentum",
    ({ learningRate, momentum, after }) => {
      const { optimizer, learningRate: rate } = outerServers({ learningRate, momentum }, 1);
      const moved = (round: number) => {
        const workers = [0, 1, 2].map((worker) => pattern(40 + 3 * round + worker, 6));
        return workers[0]?.map((_, i) => workers.reduce((sum, each) => sum - each[i]! / 12, 0));
      };
      const steps = after.map((_, round) => ({ rate, slopes: { "slope.a": moved(round) ?? [] } }));
      const initial = { a: pattern(3, 6) };
      takeSteps(givenGradients({ a: [6] }), { optimizer }, initial, steps, (round, results) =>
        expectClose(results["a"], after[round] ?? [], `round ${round + 1}`),
      );
      expect(outerServers({ learningRate, momentum }, 4).learningRate).toBe(learningRate / 4);
    },
  );

  test("reference: momentum 0 keeps no velocity", () => {
    expect(optimizerSlots(outerServers({ learningRate: 1, momentum: 0 }, 1).optimizer)).toEqual([]);
  });
});

function programOf({ kind, sizes, batch }: ProgramCase): TrainingProgram {
  if (kind === "supervised") return supervisedProgram(sizes as unknown as SupervisedShape, batch);
  if (kind === "language_model") {
    return languageModelProgram(sizes as unknown as LanguageModelShape, batch);
  }
  const policy = sizes as { observations: number; actions: number; hidden: number };
  const loss = sizes as unknown as PpoLoss;
  return ppoProgram({ ...policy, continuous: sizes["continuous"] === true }, batch, loss);
}

/** As in the script: by the position of the name among the sorted names. */
function patternedParameters({ parameters }: TrainingProgram): Feeds {
  const names = parameters.map(({ name }) => name).sort();
  return Object.fromEntries(
    parameters.map(({ name, shape }) => {
      const values = pattern(100 + names.indexOf(name), elementCount(shape));
      return [name, values.map((value) => value / 2 + Number(name.includes("norm")))];
    }),
  );
}

test.each(reference.programs)(
  "reference: loss, metrics and gradients are PyTorch's: $kind $sizes",
  (given: ProgramCase) => {
    const program = programOf(given);
    const feeds = { ...patternedParameters(program), ...given.data };
    const results = runReference(gradientsOf(program), feeds);
    for (const [name, value] of Object.entries({ ...given.metrics, loss: given.loss })) {
      expectClose(results[name], [value], name);
    }
    expect(Object.keys(given.gradients)).toHaveLength(program.parameters.length);
    for (const [name, values] of Object.entries(given.gradients)) {
      expectClose(results[gradientName(name)], values, name);
    }
  },
);

test("reference: advantages and returns are CleanRL's", () => {
  const { steps, environments, gamma, lambda, dones, cutValues, ...expected } =
    reference.advantages;
  const rollout = {
    steps,
    environments,
    rewards: pattern(60, steps * environments),
    values: pattern(61, steps * environments),
    lastValues: pattern(62, environments),
    dones: Float32Array.from(dones),
    cutValues: Float32Array.from(cutValues),
  };
  const { advantages, returns } = estimateAdvantages(rollout, gamma, lambda);
  expectClose(advantages, expected.advantages, "advantages");
  expectClose(returns, expected.returns, "returns");
});

describe("reference: learning rates follow PyTorch's schedulers", () => {
  const never = new AbortController().signal;

  test("weave: linear warm-up, then a cosine to a tenth", async () => {
    const { rate, warmup, total, rates } = reference.schedules.weave;
    const program = givenGradients({ a: [1] });
    const reported: number[] = [];
    await runWeaveWorker({
      config: {
        total_steps: total,
        local_steps: 1,
        learning_rate: rate,
        warmup_steps: warmup,
        max_grad_norm: 1,
      },
      program,
      backend: referenceBackend,
      batch: 1,
      done: 0,
      signal: never,
      optimizer: { kind: "sgd", momentum: 0, nesterov: false },
      client: { pull: () => Promise.resolve(0), push: () => Promise.resolve() },
      batches: (steps) => ({ "slope.a": new Float32Array(steps).fill(1) }),
      parameters: { a: new Float32Array(1) },
      report: async ({ learningRate }) => void reported.push(learningRate),
    });
    expectClose(reported, rates, "rates");
  });

  test("PPO: linear to zero", async () => {
    const { rate, rates } = reference.schedules.ppo;
    const reported: number[] = [];
    const config = {
      ...PPO_DEFAULTS,
      learning_rate: rate,
      num_envs: 1,
      num_steps: 2,
      num_minibatches: 1,
      update_epochs: 1,
      hidden: 4,
      total_timesteps: 4 * rates.length,
    };
    await runPpoWorker({
      config,
      makeEnvironment: cartPole,
      backend: referenceBackend,
      workers: 2,
      client: {
        pull: () => Promise.resolve(0),
        push: async (_, { learningRate }) => void reported.push(learningRate),
      },
      draws: seededRandom,
      parameters: initialParameters(ppoParameters(cartPole(), config), seededRandom(1)),
      done: 0,
      signal: never,
      report: async () => "continue",
    });
    expectClose(reported, rates, "rates");
  });
});
