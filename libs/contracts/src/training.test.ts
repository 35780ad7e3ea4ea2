// holds: train-configs

import { expect, test } from "vitest";
import { parseTrainingConfig } from "./training.ts";
import { trainingFaults } from "./training-faults.ts";

test("ppo: an empty config is CleanRL's PPO on CartPole", () => {
  expect(parseTrainingConfig("ppo", {})).toMatchObject({
    algorithm: "ppo",
    environment: "CartPole-v1",
    consistency: "bsp",
    backend: "onnx",
    total_timesteps: 500_000,
    num_envs: 4,
    num_steps: 128,
    update_epochs: 4,
    clip_coef: 0.2,
  });
});

test("ppo: Stable-Baselines3's names are resolved, including its minibatch size", () => {
  const config = {
    n_envs: 8,
    n_steps: 64,
    n_epochs: 10,
    batch_size: 128,
    clip_range: 0.1,
    clip_range_vf: null,
    normalize_advantage: false,
    env: "Acrobot-v1",
    norm_obs: true,
    norm_reward: true,
  };
  expect(trainingFaults("ppo", config)).toEqual([]);
  expect(parseTrainingConfig("ppo", config)).toMatchObject({
    num_envs: 8,
    num_steps: 64,
    update_epochs: 10,
    num_minibatches: 4,
    clip_coef: 0.1,
    clip_vloss: false,
    norm_adv: false,
    environment: "Acrobot-v1",
    normalize_observations: true,
    normalize_rewards: true,
  });
});

test("weave: outer momentum and a warm start default only with local steps", () => {
  const text = { program: "language_model", data: "a.txt", total_steps: 10 };
  const outer = (config: object) => {
    const parsed = parseTrainingConfig("weave", { ...text, ...config });
    if (parsed.algorithm !== "weave") throw new Error(parsed.algorithm);
    return [parsed.outer_learning_rate, parsed.outer_momentum, parsed.consistency];
  };
  expect(outer({})).toEqual([1, 0, "bsp"]);
  expect(outer({ local_steps: 8 })).toEqual([0.8, 0.4, "bsp"]);
  expect(outer({ local_steps: 8, outer_momentum: 0, staleness: 2 })).toEqual([0.8, 0, "ssp"]);
});

test("weave: the warm start is a thirty-second of the steps, in whole rounds", () => {
  const text = { program: "language_model", data: "a.txt", local_steps: 32 };
  const given = (config: object) => parseTrainingConfig("weave", { ...text, ...config });
  const brief = { warm_start_local_steps: 4 };
  expect(given({ total_steps: 5120 })).toMatchObject({ warm_start_steps: 160, ...brief });
  expect(given({ total_steps: 1000 })).toMatchObject({ warm_start_steps: 0, ...brief });
  const own = { warm_start_steps: 10, warm_start_local_steps: 2 };
  expect(given({ total_steps: 5120, ...own })).toMatchObject(own);
});

test("weave: averages over a thirty-second of the steps with local steps and bsp", () => {
  const text = { program: "language_model", data: "a.txt", total_steps: 5120 };
  const steps = (config: object) => {
    const parsed = parseTrainingConfig("weave", { ...text, ...config });
    return "average_steps" in parsed && parsed.average_steps;
  };
  expect(steps({ local_steps: 32 })).toBe(160);
  expect(steps({ local_steps: 32, average_steps: 7 })).toBe(7);
  expect(steps({ local_steps: 32, staleness: 1 })).toBe(0);
  expect(steps({})).toBe(0);
  const asp = { ...text, consistency: "asp", average_steps: 7 };
  expect(trainingFaults("weave", asp)).toMatchObject([
    { param: "config.average_steps", detail: expect.stringContaining("use `consistency: bsp`") },
  ]);
});

test("weave: pulls int8 changes for int8 parts under bsp", () => {
  const text = { program: "language_model", data: "a.txt", total_steps: 10, compression: "int8" };
  const pulls = (config: object) => parseTrainingConfig("weave", { ...text, ...config });
  expect(pulls({}).pull_compression).toBe("int8");
  expect(pulls({ staleness: 1 }).pull_compression).toBe("none");
  expect(pulls({ compression: "bf16" }).pull_compression).toBe("none");
  expect(pulls({ pull_compression: "none" }).pull_compression).toBe("none");
  const [fault] = trainingFaults("weave", { ...text, staleness: 1, pull_compression: "int8" });
  expect(fault).toMatchObject({ param: "config.pull_compression" });
});

test("tokenizer: bytes, a type's name, or its fields", () => {
  const text = { program: "language_model", data: "a.txt", total_steps: 10 };
  const of = (config: object) => {
    const parsed = parseTrainingConfig("weave", { ...text, ...config });
    return "tokenizer" in parsed ? parsed.tokenizer : undefined;
  };
  expect(of({})).toEqual({ type: "byte" });
  expect(of({ tokenizer: "byte" })).toEqual({ type: "byte" });
  expect(of({ tokenizer: "bpe" })).toEqual({ type: "bpe", vocab_size: 4096 });
  expect(of({ tokenizer: { type: "bpe", vocab_size: 1000 } })).toMatchObject({ vocab_size: 1000 });
  const file = { type: "huggingface", path: "/data/tokenizer.json" };
  expect(of({ tokenizer: file })).toEqual(file);
});

test("weave: an empty config trains a language model on the built-in text", () => {
  expect(trainingFaults("weave", {})).toEqual([]);
  expect(parseTrainingConfig("weave", {})).toMatchObject({
    program: "language_model",
    data: [],
    total_steps: 300,
  });
  expect(trainingFaults("weave", { program: "regression" })).toMatchObject([
    { param: "config.data" },
  ]);
  expect(trainingFaults("weave", { program: "x" })).toMatchObject([{ param: "config.program" }]);
});

const TEXT = { program: "language_model", data: "a", total_steps: 1 };

test.each([
  ["weave", { ...TEXT, tokenizer: "words" }, "config.tokenizer.type", /.+/],
  ["weave", { ...TEXT, tokenizer: 3 }, "config.tokenizer", /expected object/],
  [
    "weave",
    { ...TEXT, tokenizer: { type: "bpe", vocab_size: 300 } },
    "config.tokenizer.vocab_size",
    /512/,
  ],
  [
    "weave",
    { ...TEXT, tokenizer: { type: "byte", path: "a" } },
    "config.tokenizer.path",
    /no field/,
  ],
  ["weave", { ...TEXT, tokenizer: "huggingface" }, "config.tokenizer.path", /.+/],
  ["weave", { ...TEXT, data: "a\0" }, "config.data", /without NUL/],
  ["weave", { ...TEXT, data: ["a", "b\0"] }, "config.data[1]", /without NUL/],
  [
    "weave",
    { ...TEXT, tokenizer: { type: "huggingface", path: "a\0" } },
    "config.tokenizer.path",
    /without NUL/,
  ],
  ["ppo", { learning_rate: -1 }, "config.learning_rate", /Too small/],
  ["ppo", { learnig_rate: 1 }, "config.learnig_rate", /learnig_rate/],
  ["ppo", { num_minibatches: 3 }, "config.num_minibatches", /512 must be a multiple/],
  ["ppo", { total_timesteps: 100 }, "config.total_timesteps", /one update takes .* = 512 steps/],
  ["ppo", { batch_size: 100 }, "config.batch_size", /num_steps = 512 must be a multiple of it/],
  ["ppo", { batch_size: 0 }, "config.batch_size", /a whole number from 1, not 0/],
  ["ppo", { batch_size: -128 }, "config.batch_size", /a whole number from 1, not -128/],
  ["ppo", { batch_size: "128" }, "config.batch_size", /a whole number from 1, not "128"/],
  ["ppo", { batch_size: 64, num_minibatches: 8 }, "config.batch_size", /says the same/],
  ["ppo", { clip_range_vf: 0.3 }, "config.clip_range_vf", /use clip_coef 0\.2, or null/],
  ["ppo", { env: "a", env_id: "b" }, "config.env_id", /another name of env: give one/],
  ["ppo", { constructor: 1 }, "config.constructor", /no field 'config\.constructor'/],
  ["ppo", { toString: 1 }, "config.toString", /no field 'config\.toString'/],
  [
    "ppo",
    { num_envs: 65_536, num_steps: 1_048_576, total_timesteps: 1e12 },
    "config.num_steps",
    /= 68719476736, and one task holds 16777216 rows at most/,
  ],
  [
    "ppo",
    { num_envs: 4096, num_steps: 4096, total_timesteps: 1e9 },
    "config.update_epochs",
    /= 67108864, and one task takes 16777216 rows/,
  ],
  ["weave", { ...TEXT, batch_size: 1e6 }, "config.batch_size", /= 128000000, .* 16777216 tokens/],
  ["weave", { ...TEXT, replace_model: true }, "config.replace_model", /without register_as/],
  ["weave", { ...TEXT, warm_start_steps: 9 }, "config.warm_start_steps", /every step is exchanged/],
  ["weave", { ...TEXT, local_steps: 2 }, "config.local_steps", /at most total_steps 1, not 2/],
  ["weave", { ...TEXT, warmup_steps: 2 }, "config.warmup_steps", /at most total_steps 1, not 2/],
  ["weave", { ...TEXT, average_steps: 2 }, "config.average_steps", /at most total_steps 1, not 2/],
  [
    "weave",
    { ...TEXT, total_steps: 8, local_steps: 4, warm_start_steps: 9 },
    "config.warm_start_steps",
    /at most total_steps 8, not 9/,
  ],
  ["weave", { ...TEXT, momentum: 0.5 }, "config.momentum", /not adamw/],
  ["weave", { ...TEXT, optimizer: "adam", weight_decay: 0.1 }, "config.weight_decay", /not adam/],
  [
    "weave",
    { ...TEXT, warm_start_local_steps: 64 },
    "config.warm_start_local_steps",
    /use at most local_steps 1, not 64/,
  ],
  [
    "weave",
    { program: "regression", data: "a", total_steps: 1, target: ["y", "y"] },
    "config.target",
    /names the column "y" twice/,
  ],
  [
    "weave",
    { program: "regression", data: "a", total_steps: 1, target: "y", outputs: 2 },
    "config.outputs",
    /target names 1 columns to predict, and this is 2: leave it out/,
  ],
  [
    "weave",
    { program: "classification", data: "a", total_steps: 1, target: ["y", "z"] },
    "config.target",
    /a class is in one column, and these are 2: name one/,
  ],
  ["ppo", { pull_compression: "int8" }, "config.pull_compression", /pulls none after the first/],
  ["ppo", { normalize_rewards: 1 }, "config.normalize_rewards", /expected boolean/],
  ["ppo", { n_steps: 4, num_steps: 8 }, "config.n_steps", /another name of num_steps/],
  ["ppo", { staleness: 2, consistency: "asp" }, "config.staleness", /only `consistency: ssp`/],
  ["ppo", [], "config", /expected object/],
  ["weave", { program: "regression", total_steps: 1 }, "config.data", /Missing/],
  [
    "weave",
    { program: "language_model", data: "a", total_steps: 1, heads: 3 },
    "config.hidden_size",
    /128 must be an even multiple of heads 3/,
  ],
  [
    "weave",
    { program: "language_model", data: "a", total_steps: 1, kv_heads: 3 },
    "config.kv_heads",
    /heads 4 must be a multiple of 3/,
  ],
  [
    "weave",
    { program: "classification", data: "a", total_steps: 1, register_as: "x" },
    "config.register_as",
    /register_as/,
  ],
  [
    "weave",
    { program: "regression", data: "a", total_steps: 9, local_steps: 4, fragments: 5 },
    "config.fragments",
    /use at most local_steps 4, not 5/,
  ],
  [
    "weave",
    { program: "regression", data: "a", total_steps: 9, local_steps: 4, overlap_steps: 4 },
    "config.overlap_steps",
    /use less than local_steps 4, not 4/,
  ],
  [
    "weave",
    { program: "regression", data: "a", total_steps: 9, mixing_factor: 1 },
    "config.mixing_factor",
    /Too big/,
  ],
])("training config: %s with %j is refused at %s", (algorithm, config, param, detail) => {
  const faults = trainingFaults(algorithm, config);
  expect(faults[0]).toMatchObject({ param, detail: expect.stringMatching(detail) });
});

test("ppo: target_kl is refused with several tasks", () => {
  expect(trainingFaults("ppo", { target_kl: 0.02 }, 1)).toEqual([]);
  expect(trainingFaults("ppo", { target_kl: 0.02 }, 2)).toMatchObject([
    { param: "config.target_kl", detail: expect.stringContaining("use one task instead of 2") },
  ]);
});

test.each(["bf16", "int8", "topk"])(
  "compression: %s is refused where one ppo task alone pushes",
  (compression) => {
    expect(trainingFaults("ppo", { compression }, 1)).toMatchObject([
      { param: "config.compression", detail: expect.stringContaining("must arrive: use none") },
    ]);
    expect(trainingFaults("ppo", { compression }, 2)).toEqual([]);
  },
);

test("ppo: normalisation requires a single task", () => {
  const config = { normalize_observations: true, normalize_rewards: true };
  expect(trainingFaults("ppo", config)).toEqual([]);
  expect(trainingFaults("ppo", { norm_obs: true }, 2)).toMatchObject([
    {
      param: "config.normalize_observations",
      detail: expect.stringContaining("use one task with more `num_envs` instead of 2 tasks"),
    },
  ]);
});

test("plugin algorithm: only the common fields are checked", () => {
  expect(trainingFaults("evolution", { anything: 1, toString: 2 })).toEqual([]);
  expect(trainingFaults("evolution", { device: "cuda" }, 1, 0)).toMatchObject([
    { param: "config.device", detail: expect.stringContaining("`resources.gpu_count`") },
  ]);
  // With an unknown number of GPUs, and with a share of one.
  expect(trainingFaults("evolution", { device: "cuda" })).toEqual([]);
  expect(trainingFaults("evolution", { device: "cuda" }, 1, 0.5)).toEqual([]);
  expect(trainingFaults("evolution", { seed: -4, anything: 1 })).toMatchObject([
    { param: "config.seed" },
  ]);
  expect(trainingFaults("evolution", { staleness: 1, consistency: "asp" })).toMatchObject([
    { param: "config.staleness" },
  ]);
});

test("unknown field: the error names the probable one, at any depth", () => {
  const lm = { program: "language_model", data: "/d", total_steps: 10 };
  for (const [algorithm, config, expected] of [
    ["ppo", { learing_rate: 1 }, "'config.learing_rate'. Did you mean 'learning_rate'?"],
    ["weave", { ...lm, totl_step: 1 }, "'config.totl_step'. Did you mean 'total_steps'?"],
    [
      "weave",
      { ...lm, tokenizer: { type: "bpe", vocab: 600 } },
      "'config.tokenizer.vocab'. Did you mean 'vocab_size'?",
    ],
    ["ppo", { hidden_sizes: [64] }, "'config.hidden_sizes'. Did you mean 'hidden'?"],
    ["ppo", { lr: 1 }, "'config.lr'. Did you mean 'learning_rate'?"],
    ["ppo", { learningRate: 1 }, "'config.learningRate'. Did you mean 'learning_rate'?"],
    ["ppo", { entropy_coefficient: 1 }, "'config.entropy_coefficient'. Did you mean 'ent_coef'?"],
    ["ppo", { epochs: 1 }, "'config.epochs'. Did you mean 'update_epochs'?"],
    ["weave", { ...lm, n_layers: 2 }, "'config.n_layers'. Did you mean 'layers'?"],
    // Several are equally near.
    ["weave", { ...lm, steps: 2 }, "'config.steps'."],
    // One of another program, and one near to nothing.
    ["weave", { ...lm, classes: 2 }, "'config.classes'."],
    ["ppo", { gpu: 1 }, "'config.gpu'."],
    ["ppo", { "": 1 }, "'config.'."],
  ] as const) {
    const [fault] = trainingFaults(algorithm, config);
    expect(fault?.detail).toBe(`There is no field ${expected}`);
  }
  const [fault] = trainingFaults("ppo", { seed: 1.5 });
  expect(fault?.detail).toMatch(/'config.seed': .*expected a whole number\.$/);
});
