import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServerProcess } from "@heddle/parameters/testing/server-processes";
import { TINY_MODEL } from "@heddle/training/testing/tiny-language-model";
import { afterAll, beforeAll, expect, test } from "vitest";
import { distance, TrainingCluster, weightsOf } from "../../test/training-cluster.ts";

// Whole training jobs: real trainers and real parameter servers, each a process.

let cluster: TrainingCluster;
let servers: readonly ServerProcess[] = [];
let text = "";

beforeAll(async () => {
  cluster = new TrainingCluster();
  servers = await Promise.all([cluster.startServer("s0"), cluster.startServer("s1")]);
  text = cluster.writeText();
});
afterAll(() => cluster.close());

const SGD = { optimizer: "sgd", learning_rate: 0.5, max_grad_norm: 1e6 };

/** Trains to the end and returns the weights of the exported model. */
async function weightsAfter(
  config: object,
  tasks = 1,
  nodes: readonly string[] = [],
): Promise<Map<string, Float32Array>> {
  const job = cluster.job("weave", { ...TINY_MODEL, data: text, ...config }, servers);
  const trainers = job.startAll({ tasks, nodes });
  await Promise.all(trainers.map((trainer) => trainer.succeeded()));
  return weightsOf(trainers[0]?.artifact("model.gguf") ?? "");
}

// holds: train-bsp
test("BSP: 3 workers equal one with 3 times the batch, on any nodes", async () => {
  const config = { ...SGD, total_steps: 12 };
  const one = await weightsAfter({ ...config, batch_size: 12 });
  const start = await weightsAfter({ ...config, batch_size: 12, total_steps: 1 });
  for (const nodes of [
    ["a", "b", "c"],
    ["a", "a", "a"],
  ]) {
    const three = await weightsAfter({ ...config, batch_size: 4 }, 3, nodes);
    expect(distance(three, one), nodes.join()).toBeLessThan(1e-6);
  }
  // The compared weights have moved far.
  expect(distance(start, one)).toBeGreaterThan(1e-2);
});

// holds: train-seeds
test("seeds: two runs with one seed give the same bits, another seed others", async () => {
  const config = { total_steps: 24, local_steps: 4, optimizer: "adamw", compression: "int8" };
  const first = await weightsAfter(config, 2);
  expect(distance(await weightsAfter(config, 2), first)).toBe(0);
  expect(distance(await weightsAfter({ ...config, seed: 8 }, 2), first)).toBeGreaterThan(1e-3);
});

// holds: train-seeds
test("PPO: two runs of two tasks give the same bits, policy, metrics and lineage", async () => {
  const config = { total_timesteps: 4_096, num_steps: 64, seed: 3 };
  const run = async () => {
    const trainers = cluster.job("ppo", config, servers).startAll({ tasks: 2 });
    await Promise.all(trainers.map((trainer) => trainer.succeeded()));
    return trainers;
  };
  const [first] = await run();
  const [second] = await run();
  expect(first?.metrics()).toHaveLength(8);
  expect(first?.metrics()).toEqual(second?.metrics());
  const policy = (trainer = first) => readFileSync(trainer?.artifact("policy.onnx") ?? "");
  expect(policy(second).equals(policy(first))).toBe(true);
  const lineage = JSON.parse(readFileSync(first?.artifact("lineage.json") ?? "", "utf8"));
  expect(lineage).toMatchObject({
    algorithm: "ppo",
    step: 4_096,
    attempt: 1,
    backend: "onnx",
    device: "cpu",
    config: { environment: "CartPole-v1", num_steps: 64, num_envs: 4 },
    code_version: expect.stringMatching(/^0\.0\.0\+[0-9a-f]{16}$/),
  });
  expect(first?.progress().at(-1)).toMatchObject({
    step: 4_096,
    total_steps: 4_096,
    backend: "onnx",
    device: "cpu",
    bytes_pushed: expect.any(Number),
    reward: expect.any(Number),
    steps_per_second: expect.any(Number),
  });
});

// holds: train-target
test.each(["bsp", "ssp", "asp"])(
  "target_return: under %s it ends the job for all tasks, on any node",
  async (consistency) => {
    const target = { total_timesteps: 1_000_000, target_return: 12 };
    const config = { ...target, consistency, num_steps: 64, seed: 5 };
    const job = cluster.job("ppo", config, servers, { nodes: ["a", "a", "b", "b"], tasks: 4 });
    const trainers = job.startAll();
    await Promise.all(trainers.map((trainer) => trainer.succeeded()));
    expect(trainers[0]?.output).toMatch(/the return reached/);
    expect(trainers[0]?.metrics().at(-1)?.["reward"]).toBeGreaterThanOrEqual(12);
    for (const trainer of trainers.slice(1)) expect(trainer.output).toMatch(/the job is done/);
  },
);

// holds: train-seeds
test("fragments: tasks of two nodes, two runs, the same bits", async () => {
  const streaming = { fragments: 3, overlap_steps: 2, compression: "int8" };
  const steps = { total_steps: 60, local_steps: 6, ...streaming };
  const run = async () => {
    const config = { ...TINY_MODEL, data: text, ...steps };
    const job = cluster.job("weave", config, servers, { tasks: 3, nodes: ["a", "a", "b"] });
    const trainers = job.startAll();
    for (const trainer of trainers) await trainer.succeeded();
    const [first] = trainers;
    return {
      last: first?.metrics().at(-1),
      weights: await weightsOf(first?.artifact("model.gguf") ?? ""),
    };
  };
  const [one, two] = [await run(), await run()];
  expect(one.last?.step).toBe(60);
  expect(one.last?.loss).toBe(two.last?.loss);
  expect(distance(one.weights, two.weights)).toBe(0);
});

// holds: train-asp
test("weave under asp: each worker's steps are in the exported model", async () => {
  const config = { total_steps: 20, consistency: "asp", optimizer: "sgd" };
  const job = cluster.job("weave", { ...TINY_MODEL, data: text, ...config }, servers);
  const trainers = job.startAll({ tasks: 2, nodes: ["a", "b"] });
  await Promise.all(trainers.map((trainer) => trainer.succeeded()));
  expect(trainers[0]?.metrics().at(-1)?.round).toBe(20);
  expect(trainers[0]?.output).not.toMatch(/continuing without/);
});

// holds: train-asp
test("weave under asp: rank 0 takes a checkpoint while it waits for last parts", async () => {
  const config = { total_steps: 20, consistency: "asp", optimizer: "sgd" };
  const options = { tasks: 2, nodes: ["a", "b"] };
  const job = cluster.job("weave", { ...TINY_MODEL, data: text, ...config }, servers, options);
  const leader = job.start();
  await leader.reachesRound(20);
  const resumeFrom = await leader.checkpoint();
  // Its 20 parts, without any of the other, make ten rounds.
  expect(resumeFrom).toBe("a1-r000010-s2");
  const other = job.start({ rank: 1 });
  await Promise.all([leader.succeeded(), other.succeeded()]);
  expect(leader.output).not.toMatch(/continuing without/);
  const second = job.startAll({ attempt: 2, resumeFrom });
  await Promise.all(second.map((trainer) => trainer.succeeded()));
  expect(second[0]?.metrics().map(({ round }) => round)).toEqual(
    Array.from({ length: 10 }, (_, i) => 11 + i),
  );
});

test("weave: without a config it learns the built-in text", async () => {
  const trainer = cluster.job("weave", { total_steps: 12, batch_size: 4 }, servers).start();
  await trainer.succeeded();
  const losses = trainer.metrics().map(({ loss = 0 }) => loss);
  expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) - 0.3);
  const { data } = JSON.parse(readFileSync(trainer.artifact("lineage.json"), "utf8"));
  expect(data.files).toMatchObject([{ path: "built-in:sample-text", bytes: 256 * 1024 }]);
});

test("tables: regression and classification from CSV, each to a model.onnx", async () => {
  const rows = Array.from({ length: 64 }, (_, i) => [Math.sin(i), Math.cos(i * 3)] as const);
  const line = join(cluster.folder, "line.csv");
  writeFileSync(line, `a,b,y\n${rows.map(([a, b]) => `${a},${b},${2 * a - b}`).join("\n")}\n`);
  const half = join(cluster.folder, "half.csv");
  writeFileSync(half, `side,a,b\n${rows.map(([a, b]) => `${a > b ? 1 : 0},${a},${b}`).join("\n")}`);
  for (const config of [
    { program: "regression", data: line },
    { program: "classification", data: half, target: "side" },
  ]) {
    const more = { total_steps: 400, local_steps: 10, learning_rate: 1e-2, outer_learning_rate: 1 };
    const job = cluster.job("weave", { ...config, ...more, outer_momentum: 0 }, servers);
    const trainer = job.start();
    await trainer.succeeded();
    const losses = trainer.metrics().map(({ loss }) => loss ?? Number.NaN);
    expect(losses.at(-1)).toBeLessThan((losses[0] ?? 0) / 5);
    expect(readFileSync(trainer.artifact("model.onnx")).length).toBeGreaterThan(500);
    const { data } = JSON.parse(readFileSync(trainer.artifact("lineage.json"), "utf8"));
    expect(data).toMatchObject({ sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });
  }
});

// holds: train-divergence
test("divergence: training ends its task and names the step", async () => {
  const steep = join(cluster.folder, "steep.csv");
  writeFileSync(steep, "a,y\n1000,1\n-2000,3\n");
  const rates = { learning_rate: 1e6, outer_learning_rate: 1e6, max_grad_norm: 1e6 };
  const line = { program: "regression", hidden: [], data: steep, optimizer: "sgd" };
  const config = { ...line, ...rates, total_steps: 50 };
  const trainer = cluster.job("weave", config, servers).start();
  expect(await trainer.ended()).toBe(65);
  expect(trainer.output).toMatch(/the loss is (NaN|-?Infinity) at step 2: training has diverged/);
});

// holds: train-divergence
test("divergence: PPO with absurd policy and values ends its task, names the step", async () => {
  for (const tasks of [1, 2]) {
    const config = { learning_rate: 1e6, total_timesteps: 20_000, num_steps: 64 };
    const trainers = cluster.job("ppo", config, servers).startAll({ tasks });
    expect(await trainers[0]?.ended()).toBe(65);
    expect(trainers[0]?.output).toMatch(/at step \d+, in iteration \d+, .*training has diverged/);
    for (const trainer of trainers.slice(1)) await trainer.kill();
  }
});

test("plugin environment: what it throws fails the task without a retry", async () => {
  const plugin = join(cluster.folder, "rough.mjs");
  writeFileSync(plugin, ROUGH_SEA);
  const trainer = cluster
    .job("ppo", { environment: "RoughSea-v0" }, servers, { plugins: [{ from: plugin }] })
    .start();
  expect(await trainer.ended()).toBe(65);
  expect(trainer.output.trim().split("\n").at(-1)).toBe(
    "the task failed (invalid_value): the plugin's environment RoughSea-v0 failed: " +
      "RangeError: the wave 7 is not on the map",
  );
  expect(trainer.output).toContain("rough.mjs:");
});

test("plugin: a system error is in the last line, and may be retried", async () => {
  const plugin = join(cluster.folder, "rough.mjs");
  const read = 'readFileSync("/no/such/chart")';
  const source = ROUGH_SEA.replace(/throw [^;]*;/, `${read};`);
  writeFileSync(plugin, `import { readFileSync } from "node:fs";\n${source}`);
  const trainer = cluster
    .job("ppo", { environment: "RoughSea-v0" }, servers, { plugins: [{ from: plugin }] })
    .start();
  expect(await trainer.ended()).toBe(70);
  expect(trainer.output.trim().split("\n").at(-1)).toBe(
    "the task failed (unavailable): the plugin's environment RoughSea-v0 failed: " +
      "Error: ENOENT: no such file or directory, open '/no/such/chart'",
  );
  expect(trainer.output).toContain("rough.mjs:");
});

const ROUGH_SEA = `
let steps = 0;
const sea = () => ({
  name: "RoughSea-v0", observations: 1, actions: 2, continuous: false, maxSteps: 50,
  reset: () => undefined,
  step: () => {
    if (++steps === 7) throw new RangeError("the wave 7 is not on the map\\nsecond line");
    return { reward: 1, terminated: false };
  },
});
export default {
  name: "rough", version: "1", apiVersion: 1,
  setup: (api) => api.environments.add("RoughSea-v0", sea),
};
`;

test("errors: missing data and missing devices are reported with advice", async () => {
  const missing = join(cluster.folder, "missing.txt");
  const gone = cluster.job("weave", { ...TINY_MODEL, data: missing, total_steps: 5 }, servers);
  const trainer = gone.start();
  expect(await trainer.ended()).toBe(65);
  expect(trainer.output).toContain(`the training data ${missing} cannot be read`);
  const cuda = cluster.job("ppo", { device: "cuda" }, servers).start();
  expect(await cuda.ended()).toBe(65);
  expect(cuda.output).toMatch(/`device: cuda` needs a GPU, .*resources.gpu_count/);
});
