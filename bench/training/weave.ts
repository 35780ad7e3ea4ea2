import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import type { ParameterServerClient } from "@heddle/parameters/parameter-server-client";
import type { ShardSetSpec } from "@heddle/parameters/shards/shard-spec";
import { initialParameters } from "@heddle/training/initialize";
import {
  languageModelParameters,
  languageModelProgram,
} from "@heddle/training/language-model/language-model";
import { ADAM } from "@heddle/training/optimizers/optimizer";
import type { Parameters } from "@heddle/training/parameter-client";
import { fragmentRanges } from "@heddle/training/sharding/fragments";
import { gradientName, gradientsOf } from "@heddle/training/training-program";
import { textBatches } from "@heddle/training/weave/batches";
import { ModelAverage } from "@heddle/training/weave/model-average";
import { runWeaveWorker } from "@heddle/training/weave/weave-worker";
import { repositoryRoot } from "../support/command-line.ts";
import { joinBenchJob, openJob, startParameterProcess } from "./parameter-process.ts";

/** The bytes sent by a way of training, and the quality of the final model. */
export interface TrainingFigure {
  readonly name: string;
  readonly seed: number;
  readonly pushedBytes: number;
  readonly pulledBytes: number;
  /** On the half of the held-out text that selects settings, in nats per letter. */
  readonly choosingLoss: number;
  /** On the other half, for the result: the same batches for all. */
  readonly loss: number;
}

const ALPHABET = 32;
const SHAPE = {
  vocab_size: ALPHABET,
  context_length: 16,
  hidden_size: 32,
  layers: 1,
  heads: 2,
  kv_heads: 1,
  intermediate_size: 64,
  rope_theta: 10_000,
  norm_epsilon: 1e-5,
};
const BATCH = 8;
/** The workers of each way of training. */
export const WORKERS = 2;
/** Between exchanges. */
export const LOCAL_STEPS = 32;
const HELD_OUT_BATCHES = 128;
/** Chosen on seeds 11 to 14 and one half of the held-out text, of 3, 6 and 10 thousandths for bsp. */
const LEARNING_RATE = 6e-3;
/** The share of all steps over which the learning rate rises, for all ways. */
const RISING_PART = 1 / 16;
/** The share of all steps over which the final model is averaged. */
const AVERAGED_PART = 1 / 32;
/** The program of one worker's step. */
const program = languageModelProgram(SHAPE, BATCH);
/** Its parameters. */
export const specs = languageModelParameters(SHAPE);
const cpu = () => onnxBackend({ device: "cpu", threads: 1 });

/** This repository's docs in 32 letters; each tenth piece of 2 KiB is held out. */
const { trained, heldOut } = splitText(readDocs());
/** The held-out pieces alternately: one half selects settings, the other gives the result. */
export const heldOutHalves = halves(heldOut);

/**
 * A small language model by two workers, with BSP and float32 gradients, and with weave, H=32 and
 * int8. BSP is measured as it is and with the average that weave leaves.
 */
export async function measureWeave(
  steps: number,
  seeds: readonly number[],
): Promise<TrainingFigure[]> {
  const { address: server } = await startParameterProcess();
  const figures: TrainingFigure[] = [];
  for (const seed of seeds) {
    const run = { server, steps, seed };
    figures.push(
      ...(await train({ ...run, name: "bsp, fp32" }, synchronous, {
        optimizer: INNER_ADAM,
        learningRate: 1,
        compression: "none",
        maxGradientNorm: 1,
      })),
      ...(await train({ ...run, name: "weave, H=32, int8" }, weave, {
        ...WEAVE_RULES,
      })),
    );
  }
  return figures;
}

interface Run {
  readonly name: string;
  readonly server: string;
  /** The steps of each worker. */
  readonly steps: number;
  readonly seed: number;
}
type Rules = Pick<
  ShardSetSpec,
  "optimizer" | "learningRate" | "compression" | "pullCompression" | "maxGradientNorm"
>;
type Work = (
  client: ParameterServerClient,
  own: Parameters,
  place: { readonly rank: number; readonly steps: number; readonly seed: number },
) => Promise<{ readonly average?: Parameters }>;

async function train(run: Run, work: Work, rules: Rules): Promise<TrainingFigure[]> {
  const { name, seed, steps } = run;
  const job = await openJob({
    parameters: specs.map(({ name: tensor, shape }) => ({ name: tensor, shape, type: "f32" })),
    servers: [run.server],
    workers: WORKERS,
    consistency: { kind: "bsp" },
    ...rules,
  });
  const first = initialParameters(specs, seededRandom(seed));
  const clients = await Promise.all(
    Array.from({ length: WORKERS }, (_, rank) => joinBenchJob(job, rank)),
  );
  await clients[0]?.initialize(first);
  const copies = clients.map(() => structuredClone(first));
  const [done] = await Promise.all(
    clients.map((client, rank) => work(client, copies[rank] ?? first, { rank, steps, seed })),
  );
  const traffic = clients.map((client) => client.traffic);
  for (const client of clients) await client.close();
  const sum = (of: "bytesPushed" | "bytesPulled") =>
    traffic.reduce((total, one) => total + one[of], 0);
  const bytes = { pushedBytes: sum("bytesPushed"), pulledBytes: sum("bytesPulled") };
  const judge = async (of: string, model: Parameters): Promise<TrainingFigure> => {
    const choosingLoss = await evaluationLoss(model, heldOutHalves[0]);
    const loss = await evaluationLoss(model, heldOutHalves[1]);
    console.log(`${of}, seed ${seed}: ${choosingLoss.toFixed(4)} ${loss.toFixed(4)}`);
    return { name: of, seed, choosingLoss, loss, ...bytes };
  };
  const own = await judge(name, copies[0] ?? first);
  return done?.average ? [own, await judge(`${name}, averaged`, done.average)] : [own];
}

const synchronous: Work = async (client, own, { rank, steps, seed }) => {
  const compiled = await cpu().compile(gradientsOf(program));
  const batches = batchesOf(seed, rank);
  const average = new ModelAverage(own, WHOLE, steps * AVERAGED_PART);
  await client.pull(own);
  for (let step = 0; step < steps; step++) {
    const results = await compiled.run({ ...own, ...batches(1) });
    const part = Object.fromEntries(
      Object.keys(own).map((name) => [name, results[gradientName(name)] ?? new Float32Array()]),
    );
    await client.push(part, { weight: BATCH, learningRate: rateAt(step, steps) });
    await client.pull(own);
    if (rank === 0) average.add(0, own, step + 1);
  }
  await compiled.close();
  const averaged = structuredClone(own);
  average.copyTo(averaged);
  return { average: averaged };
};

/** The model as its one fragment. */
const WHOLE = fragmentRanges(
  specs.map(({ name, shape }) => ({ name, shape, type: "f32" })),
  1,
);

/** How the servers change the parameters. */
export const WEAVE_RULES = {
  optimizer: { kind: "sgd", momentum: 0.4, nesterov: true },
  learningRate: 0.8,
  compression: "int8",
  pullCompression: "int8",
} as const;

const weave: Work = async (client, own, place) => {
  const { signal } = new AbortController();
  await runWeaveWorker({ ...weaveWork(own, place), client, signal });
  return {};
};

/** What one worker does, but for its way to the servers. */
export function weaveWork(
  own: Parameters,
  { rank, steps, seed }: { readonly rank: number; readonly steps: number; readonly seed: number },
) {
  return {
    program,
    batch: BATCH,
    parameters: own,
    done: 0,
    optimizer: INNER_ADAM,
    config: {
      total_steps: steps,
      local_steps: LOCAL_STEPS,
      max_grad_norm: 1,
      learning_rate: LEARNING_RATE,
      warmup_steps: steps * RISING_PART,
      average_steps: Math.floor(steps * AVERAGED_PART),
      warm_start_steps: Math.floor(steps / 32 / LOCAL_STEPS) * LOCAL_STEPS,
      warm_start_local_steps: LOCAL_STEPS / 8,
    },
    backend: cpu(),
    batches: batchesOf(seed, rank),
    report: () => Promise.resolve(),
  };
}

/** A shorter memory than Adam's usual, for weave and for bsp: both do better with it. */
const INNER_ADAM = { ...ADAM, beta2: 0.99 };

/** As weave's: a rise, then a cosine to a tenth. */
function rateAt(step: number, steps: number): number {
  const rising = steps * RISING_PART;
  if (step < rising) return (LEARNING_RATE * (step + 1)) / rising;
  const part = (step - rising) / Math.max(1, steps - rising);
  return LEARNING_RATE * (0.1 + 0.45 * (1 + Math.cos(Math.PI * part)));
}

function batchesOf(seed: number, rank: number) {
  const size = { batch: BATCH, length: SHAPE.context_length };
  return textBatches(trained, size, seededRandom(100 * seed + rank));
}

/** The mean loss of the same batches of a text that was not trained on, in nats a letter. */
export async function evaluationLoss(
  parameters: Parameters,
  text: Int32Array<ArrayBuffer>,
): Promise<number> {
  const compiled = await cpu().compile(gradientsOf(program));
  const size = { batch: BATCH, length: SHAPE.context_length };
  const batches = textBatches(text, size, seededRandom(999));
  let sum = 0;
  for (let i = 0; i < HELD_OUT_BATCHES; i++) {
    sum += (await compiled.run({ ...parameters, ...batches(1) }))["loss"]?.[0] ?? 0;
  }
  await compiled.close();
  return sum / HELD_OUT_BATCHES;
}

function readDocs(): Int32Array {
  const docs = join(repositoryRoot, "docs");
  const files = readdirSync(docs).filter((name) => name.endsWith(".md"));
  const text = files.sort().map((name) => readFileSync(join(docs, name)));
  return Int32Array.from(Buffer.concat(text), letterOf);
}

/** Letters without case, space, end of line, full stop, digits as one, and all else as one. */
function letterOf(byte: number): number {
  const lower = byte | 32;
  if (lower >= 97 && lower <= 122) return lower - 97;
  if (byte >= 48 && byte <= 57) return 29;
  const others = [32, 10, 46].indexOf(byte);
  return others === -1 ? 30 : 26 + others;
}

function splitText(text: Int32Array) {
  const piece = 2048;
  const isHeldOut = (at: number) => Math.floor(at / piece) % 10 === 9;
  return {
    trained: text.filter((_, at) => !isHeldOut(at)),
    heldOut: text.filter((_, at) => isHeldOut(at)),
  };
}

function halves(
  text: Int32Array<ArrayBuffer>,
): readonly [Int32Array<ArrayBuffer>, Int32Array<ArrayBuffer>] {
  const isFirst = (at: number) => Math.floor(at / 2048) % 2 === 0;
  return [text.filter((_, at) => isFirst(at)), text.filter((_, at) => !isFirst(at))];
}
