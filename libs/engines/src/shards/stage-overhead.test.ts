// holds: shard-memory

import { residentBytesOf } from "@heddle/base/process/resident-bytes";
import { afterAll, beforeAll, expect, test } from "vitest";
import { byteVocabulary } from "../gguf/llama-model.ts";
import { SHAPE } from "../gguf/tiny-model.ts";
import type { EngineSession } from "../testing/engine-session.ts";
import { writeLargeModel } from "../testing/large-model.ts";
import { wholeBytes } from "./plan-model.ts";
import { planStages } from "./plan-stages.ts";
import { stageOverhead } from "./stage-overhead.ts";
import { StagedSession } from "./testing/staged-session.ts";

const KV_TOKENS = 4_096;
const OPTIONS = { threads: 1, contextTokens: 1_024, kvTokens: KV_TOKENS, maxSequences: 4 };
const SIZES = { embedding: 256, feedForward: 4_096, blocks: 6, contextTokens: 1_024 };
/** More than a process takes is planned, but no more than this of it. */
const MOST_SPARE = 1.35;

/** A vocabulary of 32,000 tokens. */
const vocabulary = () => {
  const letters = Array.from({ length: 179 }, (_, i) => String.fromCodePoint(0x4e00 + i));
  return byteVocabulary(letters.flatMap((one) => letters.map((other) => [one, other] as const)));
};
/** Calls that fill batches, and one with a grammar. */
const use = async (engine: EngineSession) => {
  const asks = [0, 1, 2, 3].map((seed) =>
    engine.ask({ prompt: prompt(seed), maxTokens: 20, topLogprobs: 3 }),
  );
  const short = prompt(4).slice(0, 20);
  const answers = await Promise.all([
    ...asks,
    engine.ask({ prompt: short, format: "json_object", maxTokens: 20 }),
  ]);
  expect(answers.map(({ error }) => error)).toEqual(answers.map(() => undefined));
};
const prompt = (seed: number) =>
  Array.from({ length: 900 }, (_, i) => 5 + ((i * 37 + seed * 101) % 30_000));

let session: StagedSession;
beforeAll(async () => {
  session = await StagedSession.open([2, 5], undefined, OPTIONS, (path) =>
    writeLargeModel(path, { ...SHAPE, ...SIZES }, vocabulary()),
  );
});
afterAll(() => session?.close());

test("stage memory: each process takes what is planned for its stage, and little less", async () => {
  await use(session);
  const { model, stages, engine } = session;
  const workers = [1, 2, 3].map((id) => ({ id: `${id}`, name: `${id}`, memoryBytes: 2 ** 32 }));
  const overhead = stageOverhead(model, KV_TOKENS);
  const demand = { kvTokens: KV_TOKENS, overhead, minStages: 3, maxStages: 3 };
  const plan = planStages(model, workers, demand)!;
  expect(plan.map(({ from }) => from)).toEqual([0, 2, 5]);
  const taken = [...stages.pids, engine.pid].map(residentBytesOf);
  for (const [i, { memoryBytes }] of plan.entries()) {
    expect(taken[i]).toBeLessThan(memoryBytes);
    expect(memoryBytes).toBeLessThan(MOST_SPARE * taken[i]!);
  }
});

test("stage memory: a whole model takes what one worker is asked for, and little less", async () => {
  const { whole, model } = session;
  await use(whole);
  const taken = residentBytesOf(whole.engine.pid);
  const planned = wholeBytes(model, OPTIONS);
  expect(taken).toBeLessThan(planned);
  expect(planned).toBeLessThan(MOST_SPARE * taken);
});
