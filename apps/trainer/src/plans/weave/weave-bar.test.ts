// holds: train-bars

import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import { kernelMemory, loadKernels } from "@heddle/kernels/kernels";
import {
  type Accumulator,
  PartAdder,
  STAGING_BYTES,
} from "@heddle/parameters/data-plane/part-adder";
import { type EncodedPart, PartEncoder } from "@heddle/parameters/data-plane/part-encoder";
import { shardLayouts } from "@heddle/parameters/shards/shard-layout";
import { initialParameters } from "@heddle/training/initialize";
import {
  languageModelParameters,
  languageModelProgram,
} from "@heddle/training/language-model/language-model";
import { ADAM } from "@heddle/training/optimizers/optimizer";
import type { ParameterClient, Parameters } from "@heddle/training/parameter-client";
import { gradientsOf } from "@heddle/training/training-program";
import { textBatches } from "@heddle/training/weave/batches";
import type { OuterOptimizer } from "@heddle/training/weave/outer-optimizer";
import { applyOuterStep } from "@heddle/training/weave/testing/outer-step";
import { runWeaveWorker } from "@heddle/training/weave/weave-worker";
import { expect, test } from "vitest";

// Weave with int8 parts and error feedback against synchronous training, in one process. All random
// numbers come from seeds, and parts are added in the order of ranks.

const SHAPE = {
  vocab_size: 27,
  context_length: 16,
  hidden_size: 32,
  layers: 1,
  heads: 2,
  kv_heads: 1,
  intermediate_size: 64,
  rope_theta: 10_000,
  norm_epsilon: 1e-5,
};
const [WORKERS, BATCH, STEPS, LOCAL_STEPS, SEED] = [2, 8, 3_200, 8, 1];
const SPECS = languageModelParameters(SHAPE);
const LAYOUT = shardLayouts(
  SPECS.map(({ name, shape }) => ({ name, shape, type: "f32" })),
  1,
)[0] ?? { segments: [], elements: 0 };
const backend = onnxBackend({ device: "cpu", threads: 1 });

/** Letters as 1 to 26, with 0 between words. */
const tokensOf = (text: string) => Int32Array.from(text, (letter) => letter.charCodeAt(0) & 31);

/** Sentences about a loom, drawn by the seed. */
function sentences(seed: number, count: number): Int32Array {
  const random = seededRandom(seed);
  const one = (words: string) => {
    const all = words.split(" ");
    return all[Math.floor(random() * all.length)] ?? "";
  };
  const noun = () => one("weaver heddle shuttle thread pattern warp weft loom bobbin");
  const verb = () => one("lifts guides carries crosses binds leaves holds follows");
  const adjective = () => one("long red patient narrow quiet second");
  const sentence = () => `the ${adjective()} ${noun()} ${verb()} the ${noun()} `;
  return tokensOf(Array.from({ length: count }, sentence).join("").replaceAll(" ", "`"));
}

const TRAINED = sentences(7, 400);
const HELD_OUT = sentences(8, 100);

/** The servers under bsp: parts are added in the order of ranks, then the outer step. */
class InProcessServer {
  readonly #held: Parameters;
  readonly #velocity: Parameters;
  readonly #outer: OuterOptimizer;
  readonly #accumulator: Accumulator;
  #parts: EncodedPart[] = [];
  #arrived = 0;
  #version = 0;
  #updated = Promise.withResolvers<void>();

  constructor(initial: Parameters, outer: OuterOptimizer) {
    const each = (make: (data: Float32Array) => Float32Array) =>
      Object.fromEntries(Object.entries(initial).map(([name, data]) => [name, make(data)]));
    this.#held = each((data) => data.slice());
    this.#velocity = each(({ length }) => new Float32Array(length));
    this.#outer = outer;
    const { elements } = LAYOUT;
    const memory = kernelMemory(elements * 4 + STAGING_BYTES);
    const places = { sums: 0, staging: elements * 4, elements };
    this.#accumulator = { memory, kernels: loadKernels(memory), ...places };
  }

  /** The client of one of `workers` workers. */
  client(rank: number, workers: number, compression: "none" | "int8"): ParameterClient {
    const encoder = new PartEncoder(LAYOUT, { compression, topkFraction: 1 });
    let pushed = 0;
    return {
      push: async (part) => {
        pushed++;
        this.#parts[rank] = encoder.encode(part);
        if (++this.#arrived === workers) this.#update(compression);
      },
      pull: async (into) => {
        while (this.#version < pushed) await this.#updated.promise;
        for (const [name, data] of Object.entries(this.#held)) into[name]?.set(data);
        return this.#version;
      },
    };
  }

  #update(compression: "none" | "int8"): void {
    for (const [rank, { bytes, pieces }] of this.#parts.entries()) {
      const weight = 1 / this.#parts.length;
      const adder = new PartAdder(this.#accumulator, compression, weight, rank === 0);
      adder.begin({ version: 0, bytes });
      for (const piece of pieces) adder.copy(piece);
      adder.end();
    }
    const sums = new Float32Array(this.#accumulator.memory.buffer, 0, LAYOUT.elements);
    for (const { parameter, begin, end, offset } of LAYOUT.segments) {
      const of = (all: Parameters) => all[parameter]?.subarray(begin, end) ?? new Float32Array();
      const moved = sums.subarray(offset, offset + end - begin);
      applyOuterStep(this.#outer, of(this.#held), of(this.#velocity), moved);
    }
    this.#parts = [];
    this.#arrived = 0;
    this.#version++;
    this.#updated.resolve();
    this.#updated = Promise.withResolvers();
  }
}

interface Way {
  readonly workers: number;
  readonly batch: number;
  readonly compression: "none" | "int8";
  readonly outer: OuterOptimizer;
  readonly beta2: number;
  readonly learningRate: number;
  readonly warmSteps: number;
}

/** The loss of held-out text after training, in nats a letter. */
async function train(way: Way): Promise<number> {
  const { workers, batch, compression, outer } = way;
  const initial = initialParameters(SPECS, seededRandom(SEED));
  const server = new InProcessServer(initial, outer);
  const copies = Array.from({ length: workers }, () => structuredClone(initial));
  const size = { batch, length: SHAPE.context_length };
  await Promise.all(
    copies.map((parameters, rank) =>
      runWeaveWorker({
        backend,
        parameters,
        batch,
        done: 0,
        signal: new AbortController().signal,
        program: languageModelProgram(SHAPE, batch),
        client: server.client(rank, workers, compression),
        batches: textBatches(TRAINED, size, seededRandom(100 + SEED), { rank, workers }),
        optimizer: { ...ADAM, beta2: way.beta2 },
        config: {
          total_steps: STEPS,
          local_steps: LOCAL_STEPS,
          max_grad_norm: 1,
          learning_rate: way.learningRate,
          warmup_steps: 32,
          warm_start_steps: way.warmSteps,
          warm_start_local_steps: 1,
        },
        report: async () => undefined,
      }),
    ),
  );
  return lossOf(copies[0] ?? initial);
}

async function lossOf(parameters: Parameters): Promise<number> {
  const compiled = await backend.compile(gradientsOf(languageModelProgram(SHAPE, 64)));
  const size = { batch: 64, length: SHAPE.context_length };
  const batches = textBatches(HELD_OUT, size, seededRandom(999));
  const losses: number[] = [];
  for (let i = 0; i < 16; i++) {
    losses.push((await compiled.run({ ...parameters, ...batches(1) }))["loss"]?.[0] ?? Number.NaN);
  }
  await compiled.close();
  return losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
}

test("weave: two workers, H=8 and int8, end within 3 % of the synchronous loss", async () => {
  // One worker with the whole batch and its own Adam is synchronous training; both use the same
  // data.
  const bsp = await train({
    workers: 1,
    batch: WORKERS * BATCH,
    compression: "none",
    beta2: 0.999,
    outer: { learningRate: 1, momentum: 0 },
    learningRate: 6e-3,
    warmSteps: 0,
  });
  const weave = await train({
    workers: WORKERS,
    batch: BATCH,
    compression: "int8",
    beta2: 0.99,
    outer: { learningRate: 0.8, momentum: 0.4 },
    learningRate: 4e-3,
    warmSteps: 64,
  });
  console.info(`seed ${SEED}: bsp ${bsp.toFixed(4)}, weave ${weave.toFixed(4)}`);
  expect(bsp).toBeLessThan(Math.log(27) / 2);
  expect(weave).toBeLessThan(1.03 * bsp);
});
