// holds: shard-pipeline

import { largestDifference } from "@heddle/base/testing/largest-difference";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Ask } from "../../testing/engine-session.ts";
import { expectNear, TOP_LOGPROBS } from "../../testing/near-scores.ts";
import { StagedSession } from "../testing/staged-session.ts";

const SEQUENCES = 12;
/** Less than all need at the end, so that some lose their cells and begin again. */
const KV_TOKENS = 2_048;
const OPTIONS = {
  threads: 1,
  contextTokens: 512,
  kvTokens: KV_TOKENS,
  maxSequences: SEQUENCES,
};

/** The largest difference of embeddings: rounding makes some 1e-4, another input about 1. */
const NEAR = 2e-3;

/** A prompt of this many tokens. */
const tokens = (count: number, seed: number) =>
  Array.from({ length: count }, (_, i) => 5 + ((i * 37 + seed * 101) % 300));

describe("an engine in three stages, with many requests", () => {
  let session: StagedSession;
  beforeAll(async () => {
    session = await StagedSession.open([2, 4], undefined, OPTIONS);
  });
  afterAll(() => session?.close());

  /** All at once; the answers that an engine gives which is asked for one after the other. */
  const compare = async (asks: readonly Ask[], onFirst: () => void = () => {}) => {
    let hasBegun = false;
    const running = asks.map((ask) =>
      session.submit(ask, ({ type }) => {
        if (type === "delta" && !hasBegun) onFirst();
        hasBegun ||= type === "delta";
      }),
    );
    const answers = await Promise.all(running.map(({ answer }) => answer));
    let [same, all] = [0, 0];
    for (const [i, { error, logprobs, usage }] of answers.entries()) {
      expect(error).toBeUndefined();
      const whole = await session.whole.ask(asks[i]!);
      expect(usage?.promptTokens).toBe(whole.usage?.promptTokens);
      logprobs.forEach((scores, choice) => {
        expect(scores.length).toBeGreaterThan(0);
        same += expectNear(scores, whole.logprobs[choice] ?? []);
        all += scores.length;
      });
    }
    // Else little was compared.
    expect(same / all).toBeGreaterThan(0.5);
  };
  const asksOf = (seed: number, maxTokens: number): Ask[] =>
    Array.from({ length: SEQUENCES }, (_, i) => ({
      prompt: tokens(20 + 13 * i, seed + i),
      maxTokens: maxTokens + 3 * i,
      minTokens: maxTokens + 3 * i,
      topLogprobs: TOP_LOGPROBS,
    }));

  it("has a call under way for each stage, and answers as the whole model", async () => {
    await compare(asksOf(1, 30));
    expect(session.traffic.most).toBe(3);
  });

  it("takes cells away and gives them again while calls are under way", async () => {
    await compare(asksOf(100, 120));
  });

  it("scores prompts, draws choices, constrains and cancels beside others", async () => {
    const scored = {
      prompt: tokens(60, 201),
      echo: true,
      topLogprobs: TOP_LOGPROBS,
      maxTokens: 10,
    };
    const drawn = { prompt: tokens(9, 202), choices: 4, topLogprobs: TOP_LOGPROBS, maxTokens: 40 };
    const format = "json_object";
    const constrained = {
      prompt: tokens(20, 203),
      format,
      topLogprobs: TOP_LOGPROBS,
      maxTokens: 60,
    } as const;
    const cancelled = Array.from({ length: 4 }, (_, i) =>
      session.submit({ prompt: tokens(30, 210 + i), maxTokens: 400 }),
    );
    const wait = compare([scored, drawn, constrained, ...asksOf(220, 20).slice(0, 6)], () => {
      for (const { id } of cancelled) session.engine.cancel(id);
    });
    await Promise.all([wait, ...cancelled.map(({ answer }) => answer)]);
    expect(session.engine.load()).toMatchObject({ running: 0, waiting: 0 });
  });

  it("embeds while texts run, as the whole model does", async () => {
    const inputs = [tokens(30, 300), tokens(90, 301), tokens(50, 302)];
    const [vectors] = await Promise.all([session.embed(inputs), compare(asksOf(310, 20))]);
    const whole = await session.whole.embed(inputs);
    expect(largestDifference(vectors, whole)).toBeLessThan(NEAR);
    expect(largestDifference(await session.embed(inputs), whole)).toBeLessThan(NEAR);
  });

  it("answers on when a stage is lost with several calls under way", async () => {
    const victim = session.stages.pids[1]!;
    await compare(asksOf(400, 60), () => process.kill(victim, "SIGKILL"));
    expect(session.stages.pids).not.toContain(victim);
    expect(session.crashes).toEqual([]);
  });
});
