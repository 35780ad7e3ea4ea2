// holds: data-shards

import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { largestDifference } from "@heddle/base/testing/largest-difference";
import type { Model } from "@heddle/contracts/api/models";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NO_END, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

const PROMPTS = Array.from({ length: 24 }, (_, i) => `prompt ${i} of several`);
const INPUTS = Array.from({ length: 320 }, (_, i) => `${i} ${"text ".repeat(20)}`);
/** So that numbers depend on no other request. */
const ALONE = { deterministic: true } as object;
/**
 * The largest difference of vectors of length 1: the inputs of a call round some 1e-4; other
 * inputs differ by 0.1.
 */
const NEAR = 2e-3;

describe("calls over two workers, one of which is killed", { timeout: 900_000 }, () => {
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({ workers: 1 });
  });
  afterAll(() => cluster?.close());

  const complete = async (maxTokens: number) => {
    const { choices, usage } = await cluster.openai.completions.create({
      ...ALONE,
      model: TINY,
      prompt: PROMPTS,
      max_tokens: maxTokens,
      temperature: 0,
      logit_bias: NO_END,
    });
    return { texts: choices.map(({ text }) => text), usage };
  };
  const chat = async (maxTokens: number) => {
    const { choices, usage } = await cluster.openai.chat.completions.create({
      ...ALONE,
      model: TINY,
      messages: [{ role: "user", content: "hello" }],
      n: 16,
      seed: 5,
      temperature: 1,
      max_tokens: maxTokens,
      logit_bias: NO_END,
    });
    return { texts: choices.map(({ message }) => message.content), usage };
  };
  const embed = async () => {
    const { data, usage } = await cluster.openai.embeddings.create({ model: TINY, input: INPUTS });
    return { vectors: data.map(({ embedding }) => embedding), usage };
  };
  type Embedded = Awaited<ReturnType<typeof embed>>;
  let vectors: Embedded;
  const expectNear = (some: Embedded, others: Embedded) => {
    expect(largestDifference(some.vectors, others.vectors)).toBeLessThan(NEAR);
    expect(some.usage).toEqual(others.usage);
  };
  const addWorker = async () => {
    await cluster.startWorker([], "worker-2");
    await cluster.replicasReady(2);
  };
  /** Sequences that each replica computes. */
  const running = async () => {
    const reply = await cluster.request("GET", `/api/v1/models/${TINY}`);
    return ((await reply.json()) as Model).replicas.map((replica) => replica.running);
  };
  /** Kills a worker while both compute. */
  const disturbed = async <Answer>(call: () => Promise<Answer>): Promise<Answer> => {
    // Workers report from time to time: of the call before none is left.
    await eventually(async () => (await running()).every((count) => count === 0));
    const answer = held(call());
    await eventually(async () => (await running()).every((count) => count > 0));
    await cluster.stop(cluster.workers.pop()!, "SIGKILL");
    return await answer;
  };

  it("have the answers of one worker, in order, and its usage", async () => {
    const expected = [await complete(100), await chat(20)];
    vectors = await embed();
    await addWorker();
    const over = [await complete(100), await chat(20)];
    expect(over.map(({ texts }) => texts)).toEqual(expected.map(({ texts }) => texts));
    const counts = (answers: typeof over) =>
      answers.map(({ usage }) => [usage?.prompt_tokens, usage?.completion_tokens]);
    expect(counts(over)).toEqual(counts(expected));
    expectNear(await embed(), vectors);
  });

  it("repeat the prompts that were with the killed one, and charge them once", async () => {
    const long = await complete(400);
    const again = await disturbed(() => complete(400));
    expect(again.texts).toEqual(long.texts);
    const tokens = PROMPTS.length * 400;
    expect(again.usage?.completion_tokens).toBe(tokens);
    await eventually(() => cluster.usageRows().at(-1)?.completionTokens === tokens);
  });

  it("continue the choices that were with it", async () => {
    await addWorker();
    const long = await chat(400);
    const again = await disturbed(() => chat(400));
    expect(again.texts).toEqual(long.texts);
    expect(again.usage?.completion_tokens).toBe(16 * 400);
  });

  it("repeat the inputs to embed that were with it", async () => {
    await addWorker();
    expectNear(await disturbed(embed), vectors);
  });
});
