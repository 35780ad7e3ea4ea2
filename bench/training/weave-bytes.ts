import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import type { ParameterServerClient } from "@heddle/parameters/parameter-server-client";
import type { ShardSetSpec } from "@heddle/parameters/shard-spec";
import { initialParameters } from "@heddle/training/initialize";
import {
  languageModelParameters,
  languageModelProgram,
} from "@heddle/training/language-model/language-model";
import { ADAM } from "@heddle/training/optimizers/optimizer";
import type { Parameters } from "@heddle/training/parameter-client";
import { gradientName, gradientsOf } from "@heddle/training/training-program";
import { textBatches } from "@heddle/training/weave/batches";
import { runWeaveWorker } from "@heddle/training/weave/weave-worker";
import { repositoryRoot } from "../support/command-line.ts";
import { joinJob, openJob, startParameterServer } from "./parameter-process.ts";

/** What a way of training sent, and how well the model does at the end. */
export interface TrainingFigure {
  readonly name: string;
  readonly pushedBytes: number;
  readonly pulledBytes: number;
  /** Of held-out batches, the same for all; in nats a byte. */
  readonly loss: number;
}

const SHAPE = {
  ...{ vocab_size: 256, context_length: 32, hidden_size: 64, layers: 2, heads: 2, kv_heads: 1 },
  ...{ intermediate_size: 128, rope_theta: 10_000, norm_epsilon: 1e-5 },
};
const BATCH = 8;
const WORKERS = 2;
const RATE = 3e-3;
const program = languageModelProgram(SHAPE, BATCH);
const specs = languageModelParameters(SHAPE);
const docs = join(repositoryRoot, "docs");
const text = Buffer.concat(
  readdirSync(docs)
    .filter((name) => name.endsWith(".md"))
    .sort()
    .map((name) => readFileSync(join(docs, name))),
);
const batchesOf = (seed: number) =>
  textBatches(text, { batch: BATCH, length: SHAPE.context_length }, seededRandom(seed));

/** A small language model by two workers: BSP with float32 gradients, and weave with H=32 and int8. */
export async function measureWeave(steps: number): Promise<TrainingFigure[]> {
  const server = await startParameterServer();
  return [
    await train("bsp, fp32", server, steps, synchronous, {
      ...{ optimizer: ADAM, learningRate: 1, compression: "none", maxGradientNorm: 1 },
    }),
    await train("weave, H=32, int8", server, steps, weave, {
      optimizer: { kind: "sgd", momentum: 0.9, nesterov: true },
      ...{ learningRate: 0.7, compression: "int8" },
    }),
  ];
}

type Rules = Pick<ShardSetSpec, "optimizer" | "learningRate" | "compression" | "maxGradientNorm">;
type Work = (
  client: ParameterServerClient,
  rank: number,
  own: Parameters,
  steps: number,
) => Promise<void>;

async function train(
  name: string,
  server: string,
  steps: number,
  work: Work,
  rules: Rules,
): Promise<TrainingFigure> {
  const job = await openJob({
    parameters: specs.map(({ name: tensor, shape }) => ({ name: tensor, shape, type: "f32" })),
    ...{ servers: [server], workers: WORKERS, consistency: { kind: "bsp" }, ...rules },
  });
  const first = initialParameters(specs, seededRandom(1));
  const clients = await Promise.all(
    Array.from({ length: WORKERS }, (_, rank) => joinJob(job, rank)),
  );
  await clients[0]?.initialize(first);
  const copies = clients.map(() => structuredClone(first));
  await Promise.all(
    clients.map((client, rank) => work(client, rank, copies[rank] ?? first, steps)),
  );
  const traffic = clients.map((client) => client.traffic);
  const loss = await heldOut(copies[0] ?? first);
  for (const client of clients) await client.close();
  const sum = (of: "bytesPushed" | "bytesPulled") =>
    traffic.reduce((total, one) => total + one[of], 0);
  return { name, loss, pushedBytes: sum("bytesPushed"), pulledBytes: sum("bytesPulled") };
}

const synchronous: Work = async (client, rank, own, steps) => {
  const compiled = await onnxBackend({ device: "cpu", threads: 1 }).compile(gradientsOf(program));
  const batches = batchesOf(100 + rank);
  await client.pull(own);
  for (let step = 0; step < steps; step++) {
    const results = await compiled.run({ ...own, ...batches(1) });
    const part = Object.fromEntries(
      Object.keys(own).map((name) => [name, results[gradientName(name)] ?? new Float32Array()]),
    );
    await client.push(part, { weight: BATCH, learningRate: rateAt(step, steps) });
    await client.pull(own);
  }
  await compiled.close();
};

const weave: Work = (client, rank, own, steps) =>
  runWeaveWorker({
    ...{ program, client, batch: BATCH, parameters: own, done: 0, optimizer: ADAM },
    config: {
      ...{ total_steps: steps, local_steps: 32, learning_rate: RATE, warmup_steps: 32 },
      max_grad_norm: 1,
    },
    backend: onnxBackend({ device: "cpu", threads: 1 }),
    batches: batchesOf(100 + rank),
    signal: new AbortController().signal,
    report: () => Promise.resolve(),
  });

/** As weave's: a rise, then a cosine to a tenth. */
function rateAt(step: number, steps: number): number {
  if (step < 32) return (RATE * (step + 1)) / 32;
  const part = (step - 32) / Math.max(1, steps - 32);
  return RATE * (0.1 + 0.45 * (1 + Math.cos(Math.PI * part)));
}

async function heldOut(parameters: Parameters): Promise<number> {
  const compiled = await onnxBackend({ device: "cpu", threads: 1 }).compile(gradientsOf(program));
  const batches = batchesOf(999);
  let sum = 0;
  for (let i = 0; i < 64; i++) {
    sum += (await compiled.run({ ...parameters, ...batches(1) }))["loss"]?.[0] ?? 0;
  }
  await compiled.close();
  return sum / 64;
}
