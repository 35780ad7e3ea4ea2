// holds: shard-plan

import fc from "fast-check";
import { expect, test } from "vitest";
import type { GgufValue } from "../gguf/gguf-format.ts";
import type { GgufTensorInfo } from "../gguf/gguf-reader.ts";
import { type CuttableModel, cuttableModel } from "./cut-rules.ts";
import { type PlannedStage, planStages, type ShardDemand } from "./plan-stages.ts";

const number = (value: number): GgufValue => ({ type: "uint32", value });

/** A model whose header alone exists. */
function modelOf(
  blockBytes: readonly number[],
  { architecture = "llama", embedding = 7, output = 0, metadata = {} } = {},
): CuttableModel {
  const tensor = (name: string, sizeBytes: number): GgufTensorInfo => {
    return { name, sizeBytes, shape: [sizeBytes], type: "I8", offset: 0 };
  };
  const own: Record<string, GgufValue> = {
    block_count: number(blockBytes.length),
    embedding_length: number(8),
    "attention.head_count": number(4),
    "attention.head_count_kv": number(2),
    ...metadata,
  };
  return cuttableModel({
    version: 3,
    alignment: 32,
    sizeBytes: 0,
    metadata: new Map<string, GgufValue>([
      ["general.architecture", { type: "string", value: architecture }],
      ...Object.entries(own).map(([key, value]) => [`${architecture}.${key}`, value] as const),
    ]),
    tensors: [
      tensor("token_embd.weight", embedding),
      ...blockBytes.map((bytes, block) => tensor(`blk.${block}.ffn_up.weight`, bytes)),
      ...(output > 0 ? [tensor("output.weight", output)] : []),
    ],
  });
}

/** Racks of two fabrics. */
const PLACES = [
  { fabric: "f1", rack: "r1" },
  { fabric: "f1", rack: "r2" },
  { fabric: "f2", rack: "r3" },
];
const workersOf = (...memory: readonly number[]) =>
  memory.map((memoryBytes, i) => ({ id: `w${i}`, name: `w${i}`, memoryBytes }));
const demandOf = (change: Partial<ShardDemand> = {}): ShardDemand => {
  return { kvTokens: 0, overhead: { earlier: 0, last: 0 }, maxStages: 8, ...change };
};
const ranges = (stages: readonly PlannedStage[] | undefined) =>
  stages?.map(({ workerId, from, to }) => [workerId, from, to]);

test("plan: a model that fits one worker is not divided", () => {
  const model = modelOf([10, 10, 10, 10]);
  expect(ranges(planStages(model, workersOf(10, 47), demandOf()))).toEqual([["w1", 0, 4]]);
  expect(planStages(model, workersOf(10, 46), demandOf())).toBeUndefined();
});

test("plan: stages read equally many bytes, the output counted by half", () => {
  const model = modelOf(new Array(12).fill(10), { embedding: 40 });
  const plan = planStages(model, workersOf(120, 120), demandOf());
  expect(ranges(plan)).toEqual([
    ["w0", 0, 7],
    ["w1", 7, 12],
  ]);
  expect(plan?.map(({ weightsBytes }) => weightsBytes)).toEqual([110, 90]);
});

test("plan: each stage keeps keys and values of its own blocks", () => {
  // 2 bytes for each of 2 + 2 elements of two heads.
  const model = modelOf(new Array(4).fill(100));
  const plan = planStages(model, workersOf(5_000, 5_000), demandOf({ kvTokens: 100 }));
  expect(plan?.map(({ kvBytes }) => kvBytes)).toEqual([3_200, 3_200]);
  const perBlock: GgufValue = { type: "array", items: "uint32", value: [2, 0, 2, 1] };
  const uneven = modelOf(new Array(4).fill(100), {
    metadata: { "attention.head_count_kv": perBlock },
  });
  const other = planStages(uneven, workersOf(3_000, 3_000), demandOf({ kvTokens: 100 }));
  expect(other?.map(({ kvBytes }) => kvBytes)).toEqual([1_600, 2_400]);
});

test("plan: cuts are where the architecture's blocks repeat", () => {
  const model = modelOf(new Array(14).fill(10), { architecture: "gemma3" });
  expect(model.cuts).toEqual([6, 12]);
  const own = { "attention.sliding_window_pattern": number(4) };
  expect(modelOf(new Array(14).fill(10), { architecture: "gemma3", metadata: own }).cuts).toEqual([
    4, 8, 12,
  ]);
});

test.each([
  ["mamba", 12, /its architecture is mamba, and those that may be are llama, /],
  ["gemma3", 62, /guesses what gemma3 of 62 blocks computes/],
  ["smollm3", 4, /it has 4 blocks, which repeat by 4/],
  ["llama", 1, /it has 1 blocks/],
])("plan: a model of %s with %d blocks is refused", (architecture, blocks, message) => {
  const make = () => modelOf(new Array(blocks).fill(1), { architecture });
  const refusal = { code: "unprocessable", message: expect.stringMatching(message) };
  expect(make).toThrow(expect.objectContaining(refusal));
});

/** All plans of that many stages, workers in order, at legal cuts. */
function* allPlans(
  model: CuttableModel,
  workers: number,
  stages: number,
  at = 0,
  first = 0,
): Generator<(readonly [worker: number, from: number, to: number])[]> {
  if (stages === 0) {
    if (at === model.blocks) yield [];
    return;
  }
  for (let worker = first; worker < workers; worker++) {
    for (const to of [...model.cuts, model.blocks].filter((end) => end > at)) {
      for (const rest of allPlans(model, workers, stages - 1, to, worker + 1)) {
        yield [[worker, at, to], ...rest];
      }
    }
  }
}

test("plan: of as few stages those of one rack are taken, and then those of one fabric", () => {
  const model = modelOf(new Array(4).fill(10));
  const at = (...places: readonly number[]) => {
    const memory = [37, 27, 37, 37].slice(0, places.length);
    const workers = workersOf(...memory).map((each, i) => ({ ...each, ...PLACES[places[i]!] }));
    return planStages(model, workers, demandOf())?.map(({ workerId }) => workerId);
  };
  expect(at(0, 0, 1, 1)).toEqual(["w0", "w1"]);
  expect(at(0, 1, 2, 2)).toEqual(["w2", "w3"]);
  expect(at(0, 2, 1)).toEqual(["w0", "w2"]);
  expect(at(0, 2)).toEqual(["w0", "w1"]);
});

/** The plans that keep to a rack, else to a fabric. */
function nearest<Plan extends readonly (readonly [worker: number, ...rest: number[]])[]>(
  plans: readonly Plan[],
  places: readonly (typeof PLACES)[number][],
): readonly Plan[] {
  for (const name of ["rack", "fabric"] as const) {
    const near = plans.filter((plan) => new Set(plan.map(([w]) => places[w]![name])).size === 1);
    if (near.length > 0) return near;
  }
  return plans;
}

test("plan: no other has fewer stages, or as many as near and a faster slowest stage", () => {
  const sizes = fc.integer({ min: 1, max: 30 });
  const cases = fc.record({
    places: fc.array(fc.constantFrom(...PLACES), { minLength: 4, maxLength: 4 }),
    blocks: fc.array(sizes, { minLength: 2, maxLength: 6 }),
    memory: fc.array(fc.integer({ min: 5, max: 120 }), { minLength: 1, maxLength: 4 }),
    embedding: sizes,
    output: fc.oneof(fc.constant(0), sizes),
    maxStages: fc.integer({ min: 1, max: 4 }),
    overhead: fc.record({ earlier: fc.integer({ min: 0, max: 5 }), last: sizes }),
    kvTokens: fc.integer({ min: 0, max: 2 }),
  });
  fc.assert(
    fc.property(cases, ({ blocks, memory, embedding, output, places, ...demand }) => {
      const model = modelOf(blocks, { embedding, output });
      const sum = (from: number, to: number) =>
        blocks.slice(from, to).reduce((total, each) => total + each, 0);
      const isTied = output === 0;
      const bytesOf = (from: number, to: number) => {
        const isLast = to === blocks.length;
        const ends = from === 0 || (isLast && isTied) ? embedding : 0;
        const kv = 16 * demand.kvTokens * (to - from);
        // Zeros in place of a block, and of the embedding, are as large as these; the largest block counts.
        const before = from > 0 && !isTied ? embedding : 0;
        const { earlier, last } = demand.overhead;
        const beside = isLast ? output + before + last : Math.max(...blocks) + earlier;
        return sum(from, to) + ends + kv + beside;
      };
      const costOf = (plan: readonly (readonly [number, number, number])[]) =>
        Math.max(
          ...plan.map(([, from, to]) => {
            const head = to === blocks.length ? (isTied ? embedding : output) / 2 : 0;
            return sum(from, to) + head;
          }),
        );
      const fitting = (stages: number) =>
        [...allPlans(model, memory.length, stages)].filter((plan) =>
          plan.every(([worker, from, to]) => bytesOf(from, to) <= memory[worker]!),
        );
      const workers = workersOf(...memory).map((each, i) => ({ ...each, ...places[i] }));
      const plan = planStages(model, workers, demand);
      const counts = Array.from({ length: demand.maxStages }, (_, i) => i + 1);
      const least = counts.find((stages) => fitting(stages).length > 0);
      expect(plan?.length).toBe(least);
      if (!plan) return;
      const found = plan.map(
        ({ workerId, from, to }) => [Number(workerId.slice(1)), from, to] as const,
      );
      const options = nearest(fitting(plan.length), places);
      expect(options).toContainEqual(found);
      expect(costOf(found)).toBe(Math.min(...options.map(costOf)));
      for (const { from, to, memoryBytes } of plan) expect(memoryBytes).toBe(bytesOf(from, to));
    }),
  );
});

test("plan: only the first workers are considered, and the largest model is planned", () => {
  const blocks = new Array(256).fill(10);
  const model = modelOf(blocks);
  const tooSmall = new Array(16).fill(1);
  expect(planStages(model, workersOf(...tooSmall, 9_999), demandOf())).toBeUndefined();
  const plan = planStages(
    model,
    workersOf(...new Array(16).fill(180)),
    demandOf({ maxStages: 16 }),
  );
  expect(plan).toHaveLength(16);
});
