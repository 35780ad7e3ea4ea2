import { seededRandom } from "@heddle/base/random";
import { openShards } from "@heddle/parameters/shards/shard-set";
import type { ShardSetSpec } from "@heddle/parameters/shards/shard-spec";
import { startServer, stopServers } from "@heddle/parameters/testing/server-processes";
import { runReference } from "@heddle/training/reference/reference-backend";
import {
  nextName,
  stepOf,
  type TrainingProgram,
  zeroState,
} from "@heddle/training/training-program";
import { afterAll, afterEach, beforeAll, describe, expect, it, test } from "vitest";
import { closeClients, jobOn, joinJob, SHAPES, tensors } from "./testing/training-job.ts";

// Real server processes and sockets; the workers are clients in this process.

let servers: readonly string[] = [];

beforeAll(async () => {
  servers = (await Promise.all([startServer(), startServer()])).map(({ address }) => address);
});
afterEach(closeClients);
afterAll(stopServers);

type Tensors = ReturnType<typeof tensors>;

/** The gradient of half the squared distance to a worker's own target: p - target. */
const slope = (p: Tensors, target: Tensors): Tensors => ({
  weight: p.weight.map((value, i) => value - (target.weight[i] ?? 0)),
  bias: p.bias.map((value, i) => value - (target.bias[i] ?? 0)),
  gain: p.gain.map((value, i) => value - (target.gain[i] ?? 0)),
});

/** Some updates by some workers, each with its own data; returns the parameters after each. */
async function train(
  targets: readonly (Tensors & { readonly weightOfPart: number })[],
  updates: number,
  options: Partial<ShardSetSpec> = {},
): Promise<Tensors[]> {
  const job = jobOn(servers, {
    workers: targets.length,
    ...options,
  });
  await openShards(job);
  const history: Tensors[] = [];
  const work = async (rank: number) => {
    const client = await joinJob(job, rank);
    if (rank === 0) await client.initialize(tensors((at) => Math.sin(at)));
    const target = targets[rank] as (typeof targets)[number];
    const own = tensors(() => 0);
    await client.pull(own);
    for (let update = 1; update <= updates; update++) {
      // Ranks push in a different order each time.
      await new Promise((resolve) => setTimeout(resolve, ((update * 7 + rank * 5) % 3) * 5));
      const part = slope(own, target);
      await client.push(part, { weight: target.weightOfPart, learningRate: 0.05 });
      expect(await client.pull(own)).toBe(update);
      if (rank === 0) history.push(structuredClone(own));
    }
  };
  await Promise.all(targets.map((_, rank) => work(rank)));
  await closeClients();
  return history;
}

const target = (seed: number, weightOfPart: number) => {
  const random = seededRandom(seed);
  return { ...tensors(() => random() * 4 - 2), weightOfPart };
};

const OPTIMIZERS: readonly ShardSetSpec["optimizer"][] = [
  { kind: "sgd", momentum: 0, nesterov: false },
  { kind: "sgd", momentum: 0.9, nesterov: true },
  { kind: "adamw", beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.1 },
];

const NAMES = ["weight", "bias", "gain"] as const;

/** Half the squared distance to the target, whose gradient is `slope`. */
const distanceProgram: TrainingProgram = {
  parameters: SHAPES.map(({ name, shape }) => ({ name, shape, init: { kind: "zeros" } })),
  data: SHAPES.map(({ name, shape, type }) => ({ name: `target.${name}`, shape, type })),
  build: (graph, inputs) => {
    const terms = NAMES.map((name) => {
      const [own, goal] = [inputs[name], inputs[`target.${name}`]];
      if (!own || !goal) throw new Error(`there is no ${name}`);
      return graph.mul(graph.sum(graph.square(graph.sub(own, goal))), 0.5);
    });
    return { loss: terms.reduce((sum, term) => graph.add(sum, term)), metrics: {} };
  },
};

/** The parameters after each step of the reference, one step for each rate. */
function referenceSteps(
  goal: Tensors,
  rates: readonly number[],
  options: Pick<ShardSetSpec, "optimizer" | "maxGradientNorm">,
): Record<string, ArrayLike<number>>[] {
  const step = stepOf(distanceProgram, options);
  const data = Object.fromEntries(NAMES.map((name) => [`target.${name}`, goal[name]]));
  let kept: Record<string, ArrayLike<number>> = {
    ...tensors((at) => Math.sin(at)),
    ...zeroState(distanceProgram, options.optimizer),
  };
  return rates.map((rate) => {
    const results = runReference(step, { ...kept, ...data, learning_rate: [rate] });
    const names = Object.keys(kept);
    kept = Object.fromEntries(names.map((name) => [name, results[nextName(name)] ?? []]));
    return kept;
  });
}

// holds: ps-reference
describe.each(["bsp", "asp"] as const)("%s: the servers' steps", (kind) => {
  it.each(OPTIMIZERS)("are the reference's, also in a second attempt: %o", async (optimizer) => {
    const goal = target(7, 1);
    const rates = [0.2, 0.05, 0.1, 0.4, 0.3, 0.02];
    const options = { optimizer, maxGradientNorm: 90 };
    const expected = referenceSteps(
      goal,
      rates.map((rate) => rate / 4),
      options,
    );
    const first = jobOn(servers, { ...options, learningRate: 1 / 4, consistency: { kind } });
    const second = { ...first, spec: { ...first.spec, attempt: 2 } };
    const own = tensors(() => 0);
    for (const [at, job] of [first, second].entries()) {
      expect(await openShards(job)).toBe(at * 3);
      const client = await joinJob(job, 0);
      if (at === 0) await client.initialize(tensors((position) => Math.sin(position)));
      await client.pull(own);
      for (let update = at * 3; update < at * 3 + 3; update++) {
        await client.push(slope(own, goal), { weight: 2, learningRate: rates[update] ?? 0 });
        await client.pull(own);
        for (const name of NAMES) {
          const errors = own[name].map((value, i) => value - (expected[update]?.[name]?.[i] ?? 9));
          const error = Math.max(...errors.map(Math.abs));
          expect(error, `${name} after update ${update + 1}`).toBeLessThan(1e-5);
        }
      }
    }
  });
});

describe("bsp", () => {
  // holds: ps-bsp
  it.each(OPTIMIZERS)("equals one worker with all data, to 1e-6: %o", async (optimizer) => {
    const targets = [target(1, 4), target(2, 8), target(3, 4)];
    const mean = tensors(() => 0);
    for (const { weightOfPart, ...of } of targets) {
      for (const name of NAMES) {
        for (const [i, value] of of[name].entries()) mean[name][i]! += (value * weightOfPart) / 16;
      }
    }
    const options = { optimizer, maxGradientNorm: 50 };
    const many = await train(targets, 6, options);
    const one = await train([{ ...mean, weightOfPart: 16 }], 6, options);
    for (const name of NAMES) {
      const difference = many[5]?.[name].map((value, i) => value - (one[5]?.[name][i] ?? 0));
      expect(Math.max(...(difference ?? [1]).map(Math.abs))).toBeLessThan(1e-6);
      expect(many[5]?.[name]).not.toEqual(many[0]?.[name]);
    }
  });

  // holds: ps-deterministic
  it("two runs of four workers give the same bits in any order", async () => {
    const targets = [1, 2, 3, 4].map((seed) => target(seed, seed));
    const optimizer = OPTIMIZERS[2];
    const runs = [];
    for (const jobId of ["first", "second"]) {
      runs.push(await train(targets, 6, { jobId, optimizer, maxGradientNorm: 1 }));
    }
    expect(runs[0]).toHaveLength(6);
    expect(runs[1]).toEqual(runs[0]);
  });

  it("clips the mean gradient by its norm over all shards", async () => {
    const job = jobOn(servers, { maxGradientNorm: 2 });
    await openShards(job);
    const client = await joinJob(job, 0);
    await client.initialize(tensors(() => 0));
    const gradient = tensors((at) => Math.cos(at));
    await client.push(gradient, { weight: 7, learningRate: 1 });
    const after = tensors(() => 0);
    await client.pull(after);
    const norm = Math.hypot(...after.weight, ...after.bias, ...after.gain);
    expect(norm).toBeCloseTo(2, 4);
  });

  // holds: ps-stragglers
  it("after the timeout a straggler's part is dropped and counted", async () => {
    const job = jobOn(servers, { workers: 2, stragglerMs: 50 });
    await openShards(job);
    const [fast, slow] = [await joinJob(job, 0), await joinJob(job, 1)];
    await fast.initialize(tensors(() => 0));
    const into = tensors(() => 0);
    await fast.push(
      tensors(() => 1),
      { weight: 1, learningRate: 1 },
    );
    expect(await fast.pull(into)).toBe(1);
    expect(into.bias[0]).toBe(-1);
    await slow.push(
      tensors(() => 100),
      { weight: 1, learningRate: 1 },
    );
    expect(await slow.pull(into)).toBe(1);
    expect(into.bias[0]).toBe(-1);
    for (const status of await fast.status()) {
      expect(status).toMatchObject({ stragglers: 1, pushes: 1, version: 1 });
    }
    await Promise.all([
      fast.push(
        tensors(() => 1),
        { weight: 1, learningRate: 1 },
      ),
      slow.push(
        tensors(() => 3),
        { weight: 1, learningRate: 1 },
      ),
    ]);
    await slow.pull(into);
    expect(into.bias[0]).toBeLessThan(-1);
  });

  // holds: ps-stragglers
  it("waits for no rank that has left", async () => {
    const job = jobOn(servers, { workers: 2 });
    await openShards(job);
    const [stays, leaves] = [await joinJob(job, 0), await joinJob(job, 1)];
    await stays.initialize(tensors(() => 0));
    await stays.push(
      tensors(() => 1),
      { weight: 1, learningRate: 1 },
    );
    await leaves.leave();
    expect(await stays.pull(tensors(() => 0))).toBe(1);
    await expect(leaves.pull(tensors(() => 0))).rejects.toMatchObject({ code: "conflict" });
    expect((await joinJob(job, 1)).clock).toBe(1);
  });
});

// holds: ps-ssp
test.each([0, 2])("ssp %i: no worker is further ahead than its bound", async (staleness) => {
  const workers = 3;
  const job = jobOn(servers, { workers, consistency: { kind: "ssp", staleness } });
  await openShards(job);
  // Each rank counts its pushes in an element of its own, so that a pull shows all counts.
  const leadings: number[] = [];
  const work = async (rank: number) => {
    const client = await joinJob(job, rank);
    if (rank === 0) await client.initialize(tensors(() => 0));
    const own = tensors(() => 0);
    await client.pull(own);
    const part = tensors((at) => (at === 100_000 + rank ? -1 : 0));
    for (let push = 1; push <= 12; push++) {
      await new Promise((resolve) => setTimeout(resolve, rank * 3));
      await client.push(part, { weight: 1, learningRate: 1 });
      await client.pull(own);
      expect(own.bias[rank]).toBe(push);
      leadings.push(push - Math.min(...own.bias.subarray(0, workers)));
    }
  };
  await Promise.all([0, 1, 2].map(work));
  expect(leadings).toHaveLength(36);
  expect(Math.max(...leadings)).toBeLessThanOrEqual(staleness);
  if (staleness > 0) expect(Math.max(...leadings)).toBeGreaterThan(0);
});

// holds: ps-asp
test.each(["none", "bf16", "int8", "topk"] as const)(
  "asp: converges on a convex problem, with %s parts",
  async (compression) => {
    const workers = 3;
    const job = jobOn(servers, { workers, compression, consistency: { kind: "asp" } });
    await openShards(job);
    const goal = target(5, 1);
    const work = async (rank: number) => {
      const client = await joinJob(job, rank, { topkFraction: 0.2 });
      if (rank === 0) await client.initialize(tensors(() => 0));
      const own = tensors(() => 0);
      await client.pull(own);
      for (let push = 0; push < 60; push++) {
        await client.push(slope(own, goal), { weight: 1, learningRate: 0.05 });
        await client.pull(own);
      }
      return client;
    };
    const [client] = await Promise.all([0, 1, 2].map(work));
    const end = tensors(() => 0);
    expect(await client?.pull(end)).toBe(180);
    const distance = slope(end, goal);
    expect(Math.max(...distance.weight.map(Math.abs))).toBeLessThan(0.05);
    expect(Math.max(...distance.bias.map(Math.abs))).toBeLessThan(0.05);
  },
);
