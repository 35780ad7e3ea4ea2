// holds: train-weave

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import type { Backend } from "../backend.ts";
import { initialParameters } from "../initialize.ts";
import type { Parameters, PushTerms } from "../parameter-client.ts";
import { referenceBackend } from "../reference/reference-backend.ts";
import { fragmentRanges } from "../sharding/fragments.ts";
import { supervisedProgram } from "../supervised/supervised-program.ts";
import { nextName, stepOf } from "../training-program.ts";
import { rowBatches } from "./batches.ts";
import type { FragmentExchange } from "./fragment-exchange.ts";
import { ModelAverage } from "./model-average.ts";
import { applyOuterStep } from "./testing/outer-step.ts";
import type { WeaveConfig, WeaveProgress, WeaveWorkerOptions } from "./weave-options.ts";
import { weaveSchedule } from "./weave-schedule.ts";
import { runWeaveWorker } from "./weave-worker.ts";

// Workers of a small regression with a server in this process, with delays of its own.

const [WORKERS, BATCH, SEED] = [2, 2, 11];
const shape = { features: 3, outputs: 1, task: "regression" as const, hidden: [5] };
const program = supervisedProgram(shape, BATCH);
const SPECS = program.parameters.map(({ name, shape: of }) => ({
  name,
  shape: of,
  type: "f32" as const,
}));
const OUTER = { learningRate: 0.8, momentum: 0.4 };
const SGD = { kind: "sgd", momentum: 0, nesterov: false } as const;
const draws = seededRandom(SEED);
const uniform = (length: number) => Float32Array.from({ length }, () => draws() - 0.5);
const ROWS = { features: uniform(60), target: uniform(20), count: 20 };

const config = (more: Partial<WeaveConfig> = {}): WeaveConfig => ({
  total_steps: 22,
  local_steps: 6,
  learning_rate: 0.2,
  warmup_steps: 0,
  max_grad_norm: 1e3,
  ...more,
});
const initial = () => initialParameters(program.parameters, seededRandom(SEED));
const batchesOf = (rank: number, from: number) => {
  const source = rowBatches(ROWS, BATCH, seededRandom(SEED), { rank, workers: WORKERS });
  if (from > 0) source(from);
  return source;
};

const zeros = (model: Parameters) =>
  Object.fromEntries(
    Object.entries(model).map(([name, { length }]) => [name, new Float32Array(length)]),
  );

/** Averages the parts of a fragment when all have arrived, and steps as the servers do. */
class FragmentServer {
  readonly held = initial();
  readonly #velocity = zeros(this.held);
  readonly #ranges: ReturnType<typeof fragmentRanges>;
  readonly #rounds: { parts: Map<number, Parameters>; done: PromiseWithResolvers<void> }[][];
  readonly #pauseMs: () => number;

  constructor(fragments: number, pauseMs: () => number) {
    this.#ranges = fragmentRanges(SPECS, fragments);
    this.#rounds = this.#ranges.map(() => []);
    this.#pauseMs = pauseMs;
  }

  exchange(rank: number): FragmentExchange {
    const [shared, part] = [zeros(this.held), zeros(this.held)];
    const underWay = new Map<number, Promise<void>>();
    const settle = async () => void (await Promise.all(underWay.values()));
    return {
      shared,
      part,
      settle,
      pullAll: async () => {
        for (const [fragment] of this.#ranges.entries()) this.#copy(fragment, this.held, shared);
      },
      begin: (fragment, round) => {
        underWay.set(fragment, this.#turn(fragment, { rank, round, part, shared }));
      },
      finish: async (fragment) => {
        await underWay.get(fragment);
        underWay.delete(fragment);
      },
    };
  }

  async #turn(
    fragment: number,
    {
      rank,
      round,
      part,
      shared,
    }: { rank: number; round: number; part: Parameters; shared: Parameters },
  ): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, this.#pauseMs()));
    const rounds = this.#rounds[fragment] ?? [];
    rounds[round] ??= { parts: new Map(), done: Promise.withResolvers() };
    const update = rounds[round];
    update.parts.set(rank, part);
    if (update.parts.size === WORKERS) {
      this.#apply(
        fragment,
        [...update.parts].sort(([a], [b]) => a - b).map(([, each]) => each),
      );
      update.done.resolve();
    }
    await update.done.promise;
    this.#copy(fragment, this.held, shared);
  }

  #apply(fragment: number, parts: readonly Parameters[]): void {
    for (const { parameter, begin, end } of this.#ranges[fragment] ?? []) {
      const of = (all: Parameters) => (all[parameter] ?? new Float32Array()).subarray(begin, end);
      const mean = of(parts[0] ?? {}).map(
        (_, i) => parts.reduce((sum, part) => sum + (of(part)[i] ?? 0), 0) / parts.length,
      );
      applyOuterStep(OUTER, of(this.held), of(this.#velocity), mean);
    }
  }

  #copy(fragment: number, from: Parameters, to: Parameters): void {
    for (const { parameter, begin, end } of this.#ranges[fragment] ?? []) {
      to[parameter]?.set(from[parameter]?.subarray(begin, end) ?? [], begin);
    }
  }
}

type Kept = Readonly<Record<string, Float32Array>>;
type Own = Pick<WeaveWorkerOptions, "parameters" | "exchange" | "report"> &
  Partial<WeaveWorkerOptions>;

/** One worker of the job, from a number of rounds on. */
function work(of: WeaveConfig, rank: number, own: Own): Promise<void> {
  const { done = 0 } = own;
  return runWeaveWorker({
    config: of,
    program,
    optimizer: SGD,
    backend: referenceBackend,
    batch: BATCH,
    done,
    batches: batchesOf(rank, weaveSchedule(of).stepAfter(done)),
    // All data passes through the exchange.
    client: { pull: () => Promise.resolve(0), push: () => Promise.resolve() },
    signal: new AbortController().signal,
    ...own,
  });
}

/** Trains with all workers; returns rank 0's model and each worker's state after each round. */
async function train(of: WeaveConfig, pauseMs = () => 0) {
  const server = new FragmentServer(of.fragments ?? 1, pauseMs);
  const kept = Array.from({ length: WORKERS }, () => [] as Kept[]);
  const models = kept.map(initial);
  await Promise.all(
    models.map((parameters, rank) =>
      work(of, rank, {
        parameters,
        exchange: server.exchange(rank),
        report: async ({ state }) => void kept[rank]?.push(structuredClone(state)),
      }),
    ),
  );
  return { model: models[0] ?? initial(), held: server.held, kept };
}

const STREAMING = { fragments: 3, overlap_steps: 3, mixing_factor: 0.5 };

test("weave: the result depends on the schedule only, not on the exchanges' timing", async () => {
  const { model, held } = await train(config(STREAMING));
  const late = seededRandom(5);
  const again = await train(config(STREAMING), () => Math.floor(late() * 12));
  expect(again.model).toEqual(model);
  // At the end every worker has the servers' parameters.
  expect(model).toEqual(held);
  const { model: whole } = await train(config());
  expect(model).not.toEqual(whole);
});

test.each([0.5, 0.2])(
  "weave: it follows the paper's algorithm, mixing factor %d",
  async (mixing) => {
    const { model } = await train(config({ ...STREAMING, mixing_factor: mixing }));
    const expected = await streamingDiLoCo(mixing);
    for (const [name, data] of Object.entries(expected)) {
      for (const [i, value] of data.entries()) expect(model[name]?.[i]).toBeCloseTo(value, 6);
    }
  },
);

/** Algorithm 2 of arXiv 2501.18512 in one loop over steps, for H=6, F=3, tau=3 and 22 steps. */
async function streamingDiLoCo(mixingFactor: number): Promise<Parameters> {
  const of = config();
  const once = await referenceBackend.compile(
    stepOf(program, { optimizer: SGD, maxGradientNorm: of.max_grad_norm }),
  );
  const outer = initial();
  const velocity = zeros(outer);
  const workers = [0, 1].map((rank) => ({ model: initial(), batches: batchesOf(rank, 0) }));
  const sent = new Map<number, Float32Array[]>();
  // The flattened model, in thirds.
  const names = Object.keys(outer);
  const flat = (model: Parameters) =>
    Float32Array.from(names.flatMap((name) => [...(model[name] ?? [])]));
  const unflatten = (values: Float32Array, into: Parameters) => {
    let at = 0;
    for (const name of names) {
      const { length = 0 } = into[name] ?? {};
      into[name]?.set(values.subarray(at, at + length));
      at += length;
    }
  };
  const count = flat(outer).length;
  const bounds = [0, 1, 2, 3].map((f) => Math.floor((f * count) / 3));
  const merge = (f: number, mixing: number) => {
    const [from = 0, to = 0] = bounds.slice(f, f + 2);
    const parts = sent.get(f) ?? [];
    sent.delete(f);
    const [values, speeds] = [flat(outer), flat(velocity)];
    const mean =
      parts[0]?.map((value, i) => (value + (parts[1]?.[i] ?? 0)) / 2) ?? new Float32Array();
    applyOuterStep(OUTER, values.subarray(from, to), speeds.subarray(from, to), mean);
    unflatten(values, outer);
    unflatten(speeds, velocity);
    for (const { model } of workers) {
      const own = flat(model);
      for (let i = from; i < to; i++) {
        own[i] = mixing * (own[i] ?? 0) + (1 - mixing) * (values[i] ?? 0);
      }
      unflatten(own, model);
    }
  };
  for (let t = 1; t <= of.total_steps; t++) {
    const part = (t - 1) / of.total_steps;
    const rate = of.learning_rate * (0.1 + 0.45 * (1 + Math.cos(Math.PI * part)));
    for (const { model, batches } of workers) {
      const step = Float32Array.of(t - 1);
      const feeds = { ...model, ...batches(1), learning_rate: Float32Array.of(rate), step };
      const results = await once.run(feeds);
      for (const name of names) model[name]?.set(results[nextName(name)] ?? []);
    }
    const isLast = t === of.total_steps;
    // The last round, steps 19 to 22, exchanges all at its end.
    for (let f = 0; f < 3; f++) {
      const due = t % 6 === ((f + 1) * 2) % 6 && t <= 18;
      if (!due && !isLast) continue;
      const [from = 0, to = 0] = bounds.slice(f, f + 2);
      const before = flat(outer).slice(from, to);
      const parts = workers.map(({ model }) => {
        const after = flat(model).slice(from, to);
        return before.map((value, i) => value - (after[i] ?? 0));
      });
      sent.set(f, parts);
    }
    for (let f = 0; f < 3; f++) {
      if (isLast) merge(f, 0);
      else if ((t - 3) % 6 === ((f + 1) * 2) % 6 && sent.has(f)) merge(f, mixingFactor);
    }
  }
  return outer;
}

test("weave: a part is weighted by its samples, the short last round's too", async () => {
  const terms: PushTerms[] = [];
  await work(config(), 0, {
    parameters: initial(),
    client: {
      pull: () => Promise.resolve(0),
      push: async (_, given) => void terms.push(given),
    },
    report: async () => undefined,
  });
  // Rounds of 6, 6, 6 and 4 steps with two samples each.
  expect(terms).toEqual([12, 12, 12, 8].map((weight) => ({ weight, learningRate: 1 })));
});

test("weave: the model is the average after each exchange; training is unchanged", async () => {
  const plain = await train(config());
  const of = config({ average_steps: 9 });
  const server = new FragmentServer(1, () => 0);
  const expected = new ModelAverage(initial(), fragmentRanges(SPECS, 1), 9);
  const models = [initial(), initial()];
  await Promise.all(
    models.map((parameters, rank) =>
      work(of, rank, {
        parameters,
        exchange: server.exchange(rank),
        // Until rank 0 continues there is no further update.
        report: async ({ step }) => void (rank === 0 && expected.add(0, server.held, step)),
      }),
    ),
  );
  expect(server.held).toEqual(plain.held);
  const wanted = initial();
  expected.copyTo(wanted);
  expect(models[0]).toEqual(wanted);
  expect(wanted).not.toEqual(plain.model);
});

test.each([STREAMING, { ...STREAMING, average_steps: 9 }])(
  "weave: a worker with fragments in progress resumes bit by bit: %j",
  async (how) => {
    const of = config(how);
    const { model, kept } = await train(of);
    expect(kept[0]).toHaveLength(4);
    for (const done of [1, 2, 3]) {
      // All replay from the beginning, and are aborted when the servers have that round's parts.
      const server = new FragmentServer(3, () => 0);
      const broken = [0, 1].map((rank) => {
        const exchange = server.exchange(rank);
        const report = async ({ round }: WeaveProgress) => {
          if (round < done) return;
          await exchange.settle();
          throw new Error("it is broken off");
        };
        return work(of, rank, { parameters: initial(), exchange, report });
      });
      const end = { status: "rejected", reason: { message: "it is broken off" } };
      expect(await Promise.allSettled(broken)).toMatchObject([end, end]);
      const models = [initial(), initial()];
      await Promise.all(
        models.map((parameters, rank) => {
          const exchange = server.exchange(rank);
          const state = kept[rank]?.[done - 1];
          return work(of, rank, {
            parameters,
            exchange,
            state,
            done,
            report: async () => undefined,
          });
        }),
      );
      expect(models[0]).toEqual(model);
    }
  },
);

/** The backend, with the steps of each program that it has compiled, and how many are open. */
function watched() {
  const seen = { compiled: [] as number[], open: 0, mostOpen: 0 };
  const backend: Backend = {
    ...referenceBackend,
    compile: async (executable) => {
      const made = await referenceBackend.compile(executable);
      seen.compiled.push(executable.loop?.steps ?? 1);
      seen.mostOpen = Math.max(seen.mostOpen, ++seen.open);
      return { run: (feeds) => made.run(feeds), close: async () => void seen.open-- };
    },
  };
  return { seen, backend };
}

test("weave: a whole model's worker has one program at a time", async () => {
  const { seen, backend } = watched();
  await work(config(), 0, { parameters: initial(), backend, report: async () => undefined });
  expect(seen).toEqual({ compiled: [6, 4], open: 0, mostOpen: 1 });
});

test.each([{ fragments: 2 }, { overlap_steps: 4 }, { mixing_factor: 0.5, fragments: 2 }])(
  "weave: a worker that streams keeps its programs, one for each length: %j",
  async (how) => {
    const of = config(how);
    const server = new FragmentServer(of.fragments ?? 1, () => 0);
    const { seen, backend } = watched();
    const parameters = [initial(), initial()];
    await Promise.all(
      parameters.map((own, rank) =>
        work(of, rank, {
          parameters: own,
          exchange: server.exchange(rank),
          report: async () => undefined,
          ...(rank === 0 && { backend }),
        }),
      ),
    );
    expect(new Set(seen.compiled).size).toBe(seen.compiled.length);
    expect(seen).toMatchObject({ open: 0, mostOpen: seen.compiled.length });
    expect(seen.mostOpen).toBeGreaterThan(1);
  },
);

test("weave: a round's report has the means of its own steps", async () => {
  const reports: WeaveProgress[] = [];
  const losses: number[] = [];
  const report = async (progress: WeaveProgress) => void reports.push(progress);
  const backend: Backend = {
    ...referenceBackend,
    compile: async (executable) => {
      const made = await referenceBackend.compile(executable);
      const run: typeof made.run = async (feeds) => {
        const results = await made.run(feeds);
        losses.push(...(results["loss"] ?? []));
        return results;
      };
      return { ...made, run };
    },
  };
  await work(config(), 0, { parameters: initial(), backend, report });
  const mean = (from: number, to: number) =>
    losses.slice(from, to).reduce((sum, loss) => sum + loss, 0) / (to - from);
  const means = [mean(0, 6), mean(6, 12), mean(12, 18), mean(18, 22)];
  expect(reports.map(({ loss }) => loss)).toEqual(means);
  expect(reports.map(({ round, rounds, step }) => [round, rounds, step])).toEqual([
    [1, 4, 6],
    [2, 4, 12],
    [3, 4, 18],
    [4, 4, 22],
  ]);
  // Without an overlap the state is the optimizer's alone.
  for (const { state, gradientNorm } of reports) {
    expect(Object.keys(state).filter((name) => name.startsWith("local"))).toEqual([]);
    expect(gradientNorm).toBeGreaterThan(0);
  }
});
