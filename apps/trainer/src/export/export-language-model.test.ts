// holds: train-export

import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import { TestSession } from "@heddle/engines/llama/testing/test-session";
import { restoreShards } from "@heddle/parameters/shards/shard-set";
import { initialParameters } from "@heddle/training/initialize";
import { Graph } from "@heddle/training/ir/graph";
import type { Value } from "@heddle/training/ir/value";
import {
  type LanguageModelShape,
  languageModelLogits,
  languageModelParameters,
  languageModelProgram,
} from "@heddle/training/language-model/language-model";
import { ADAM } from "@heddle/training/optimizers/optimizer";
import type { Parameters } from "@heddle/training/parameter-client";
import { interpret } from "@heddle/training/reference/interpreter";
import { localStepsOf, nextName } from "@heddle/training/training-program";
import { textBatches } from "@heddle/training/weave/batches";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TrainingCluster, type TrainingJob } from "../../test/training-cluster.ts";
import { type TextTokenizer, textTokenizer } from "../data/text-tokenizer.ts";
import { exportLanguageModel } from "./export-language-model.ts";

const TEXT = "a heddle guides the warp, a shuttle carries the weft. ".repeat(8);
const BYTES = textTokenizer({ type: "byte" }, Buffer.from(TEXT));
const PAIRS = textTokenizer({ type: "bpe", vocab_size: 512 }, Buffer.from(TEXT));
const SHAPE: LanguageModelShape = {
  vocab_size: BYTES.vocabulary.tokens.length,
  context_length: 32,
  hidden_size: 32,
  layers: 2,
  heads: 4,
  kv_heads: 2,
  intermediate_size: 64,
  rope_theta: 10_000,
  norm_epsilon: 1e-5,
};
const PAIRS_SHAPE: LanguageModelShape = {
  ...SHAPE,
  vocab_size: PAIRS.vocabulary.tokens.length,
  vocabulary: "0123456789abcdef",
};
const LINEAGE = {
  jobId: "job_1",
  jobName: "tiny",
  codeVersion: "0",
  step: 60,
  data: { sha256: "ab", bytes: 1, files: [] },
};

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-export-"));
});
afterAll(() => rm(directory, { recursive: true }));

test.each([
  ["bytes", BYTES, SHAPE],
  ["byte pairs", PAIRS, PAIRS_SHAPE],
])(
  "export: greedy text equals the trainer's own, token by token: %s",
  async (name, tokenizer, shape) => {
    const model = { tokenizer, shape };
    const parameters = await train(model);
    const path = join(directory, `${name}.gguf`);
    const { vocabulary } = tokenizer;
    await exportLanguageModel(path, { shape, vocabulary, parameters, lineage: LINEAGE });
    const prompt = "a heddle";
    const text = greedy(model, parameters, prompt, 16);
    expect(await serve(path, prompt, 16)).toBe(text);
    expect(text.length).toBeGreaterThanOrEqual(16);
  },
);

test("export: the engine answers as the last checkpoint's parameters do", async () => {
  const cluster = new TrainingCluster();
  try {
    const servers = [await cluster.startServer("s0")];
    const data = join(cluster.folder, "text.txt");
    writeFileSync(data, TEXT);
    const config = {
      ...SHAPE,
      vocab_size: undefined,
      program: "language_model",
      data,
      batch_size: 4,
      learning_rate: 1e-2,
      local_steps: 10,
      outer_learning_rate: 1,
      outer_momentum: 0,
      // An average over steps would be exported, which no server has.
      average_steps: 0,
    };
    const first = cluster.job("weave", { ...config, total_steps: 100_000 }, servers).start();
    await first.reachesRound(6);
    const resumeFrom = await first.checkpoint();
    await first.kill();
    // The next attempt finds all its steps done, and exports the model.
    const round = Number(/-r(\d+)-/.exec(resumeFrom)?.[1]);
    const { jobId } = first.orders;
    const ended = { ...config, total_steps: round * 10 };
    const job = cluster.job("weave", ended, servers, { jobId, attempt: 2, resumeFrom });
    const second = job.start();
    await second.succeeded();
    const own = await restored(job, resumeFrom);
    const prompt = "a heddle";
    const text = greedy({ tokenizer: BYTES, shape: SHAPE }, own, prompt, 16);
    expect(await serve(second.artifact("model.gguf"), prompt, 16)).toBe(text);
  } finally {
    await cluster.close();
  }
});

test("export: a missing tensor is named, and no file is left", async () => {
  const path = join(directory, "none.gguf");
  const { vocabulary } = BYTES;
  const model = { shape: SHAPE, vocabulary, parameters: {}, lineage: LINEAGE };
  const exported = exportLanguageModel(path, model);
  await expect(exported).rejects.toThrow(/token_embd has 32 x \d+ weights, got nothing/);
});

/** The content of a checkpoint, from the parameter servers. */
async function restored(job: TrainingJob, name: string): Promise<Parameters> {
  const parameters = languageModelParameters(SHAPE);
  const access = job.access({
    attempt: 3,
    parameters: parameters.map(({ name: tensor, shape }) => ({ name: tensor, shape, type: "f32" })),
  });
  const { servers } = access.spec;
  await restoreShards(access, [{ name, servers, pieces: 1 }]);
  const client = await job.join(0, access.spec);
  const into = initialParameters(parameters, seededRandom(0));
  await client.pull(into);
  return into;
}

interface TestModel {
  readonly tokenizer: TextTokenizer;
  readonly shape: LanguageModelShape;
}

/** Sixty steps on one short text: enough for meaningful weights. */
async function train({ tokenizer, shape }: TestModel): Promise<Parameters> {
  const random = seededRandom(2);
  const program = languageModelProgram(shape, 4);
  const parameters = initialParameters(languageModelParameters(shape), random);
  const executable = localStepsOf(program, { optimizer: ADAM, maxGradientNorm: 1 }, 60);
  const compiled = await onnxBackend({ device: "cpu", threads: 1 }).compile(executable);
  const state = executable.inputs
    .filter(({ name }) => name.includes("_moment.") || name === "step")
    .map(({ name, shape }) => [name, new Float32Array(shape.reduce((a, b) => a * b, 1))] as const);
  const text = tokenizer.encode(Buffer.from(TEXT));
  const data = textBatches(text, { batch: 4, length: 32 }, random)(60);
  const rate = { learning_rate: new Float32Array(60).fill(1e-2) };
  const results = await compiled.run({
    ...parameters,
    ...Object.fromEntries(state),
    ...data,
    ...rate,
  });
  return Object.fromEntries(
    Object.keys(parameters).map((name) => [name, results[nextName(name)] as Float32Array]),
  );
}

/** The trainer's own program, run by the float64 interpreter over the whole text each time. */
function greedy(
  { tokenizer, shape }: TestModel,
  parameters: Parameters,
  prompt: string,
  count: number,
): string {
  const tokens = [...tokenizer.encode(Buffer.from(prompt))];
  const made: number[] = [];
  const graph = new Graph();
  const inputs: Record<string, Value> = { tokens: graph.input("tokens", [1, 32], "i32") };
  for (const { name, shape: size } of languageModelParameters(shape)) {
    inputs[name] = graph.input(name, size);
  }
  const logits = languageModelLogits(graph, inputs, shape);
  while (made.length < count) {
    const padded = [...tokens, ...new Array<number>(32 - tokens.length).fill(0)];
    const [rows] = interpret([logits], { ...parameters, tokens: padded });
    const width = shape.vocab_size;
    const row = rows?.subarray((tokens.length - 1) * width, tokens.length * width) ?? [];
    const best = [...row].reduce((top, value, at) => (value > (row[top] ?? 0) ? at : top), 0);
    tokens.push(best);
    made.push(best);
  }
  return Buffer.from(tokenizer.decode(made)).toString();
}

async function serve(path: string, content: string, maxTokens: number): Promise<string> {
  const session = await TestSession.open({}, path);
  try {
    const answer = await session.ask({ prompt: [{ role: "user", content }], maxTokens });
    return answer.texts[0] ?? "";
  } finally {
    await session.close();
  }
}
