// holds: train-configs

import { expect, test } from "vitest";
import { trainingFaults } from "./training-faults.ts";

const TEXT = { program: "language_model", data: "a.txt", total_steps: 1e6 };
const TABLE = { program: "regression", data: "a.csv", total_steps: 1e6 };
/** As many tokens between two exchanges as DiLoCo's: 500 steps of 512 texts of 1,024. */
const DILOCO = { local_steps: 500, batch_size: 512, context_length: 1024, heads: 2 };

test.each([
  ["weave", { ...TEXT, ...DILOCO }],
  ["weave", { ...TEXT, ...DILOCO, local_steps: 500, total_steps: 500 }],
  ["weave", { ...TEXT, tokenizer: "bpe", hidden_size: 1024, layers: 24, heads: 16 }],
  ["weave", { ...TABLE, local_steps: 64, batch_size: 262_144, hidden: [8192, 512] }],
  ["ppo", { num_envs: 4096, num_steps: 512, total_timesteps: 1e9, hidden: 512 }],
])("training size: %s with %j is accepted", (algorithm, config) => {
  expect(trainingFaults(algorithm, config)).toEqual([]);
});

test.each([
  [
    "weave",
    { ...TEXT, ...DILOCO, local_steps: 600 },
    "config.local_steps",
    /batch_size \* context_length \* local_steps = 314572800, .* 268435456 tokens at most/,
  ],
  [
    "weave",
    { ...TABLE, local_steps: 65_536, batch_size: 1_048_576 },
    "config.local_steps",
    /batch_size \* local_steps = 68719476736, .* 16777216 rows at most/,
  ],
  [
    "weave",
    { ...TEXT, hidden_size: 65_536, layers: 1024 },
    "config.hidden_size",
    /make 52774444204032 parameters, and a task holds 2147483648 at most/,
  ],
  [
    "weave",
    { ...TEXT, context_length: 131_072, batch_size: 16 },
    "config.context_length",
    /batch_size \* heads \* context_length\^2 = 1099511627776 scores/,
  ],
  [
    "weave",
    { ...TEXT, context_length: 128, batch_size: 131_072, intermediate_size: 1024 },
    "config.batch_size",
    /batch_size \* context_length \* 1024, its widest layer, = 17179869184 numbers/,
  ],
  [
    "weave",
    { ...TABLE, hidden: [1_048_576, 1_048_576] },
    "config.hidden",
    /its layers make 1099511627776 parameters/,
  ],
  [
    "weave",
    { ...TABLE, hidden: [1_048_576], batch_size: 4096 },
    "config.batch_size",
    /batch_size \* the widest of hidden = 4294967296 numbers/,
  ],
  ["ppo", { hidden: 65_536 }, "config.hidden", /2 \* hidden \* hidden = 8589934592 parameters/],
  [
    "ppo",
    { num_envs: 4096, num_steps: 4096, num_minibatches: 1, update_epochs: 1, hidden: 256 },
    "config.hidden",
    /16777216 rows at a time \* hidden = 4294967296 numbers of a layer/,
  ],
])("training size: %s with %j is refused at %s", (algorithm, config, param, detail) => {
  const faults = trainingFaults(algorithm, { ...config });
  const own = faults.filter((fault) => fault.param === param);
  expect(own).toMatchObject([{ detail: expect.stringMatching(detail) }]);
});
