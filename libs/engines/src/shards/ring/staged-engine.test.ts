// holds: shard-engine, shard-adapters

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { largestDifference } from "@heddle/base/testing/largest-difference";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { writeTinyAdapter } from "../../gguf/tiny-adapter.ts";
import type { Ask, EngineSession } from "../../testing/engine-session.ts";
import { OPTIONS, StagedSession } from "../testing/staged-session.ts";

const SILENCE_MS = 5_000;
/** How long a slow stage does nothing, again and again. */
const SLOW_MS = 50;

/** A prompt of this many tokens. */
const tokens = (count: number, seed = 0) =>
  Array.from({ length: count }, (_, i) => 5 + ((i * 37 + seed * 101) % 300));

describe("an engine in three stages", () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-staged-adapters-"));
  let session: StagedSession;
  beforeAll(async () => {
    session = await StagedSession.open([2, 4], SILENCE_MS);
  });
  afterAll(async () => {
    await session?.close();
    rmSync(folder, { recursive: true });
  });

  /** An adapter of these blocks of the model; of all if absent. */
  const adapterOf = async (seed: number, blocks: readonly number[] = [0, 1, 2, 3, 4, 5]) => {
    const path = join(folder, `${seed}.gguf`);
    await writeTinyAdapter(path, seed, blocks);
    const weights = { key: `a${seed}`, file: `${seed}.gguf`, sources: [`file://${path}`] };
    return { weights, path, scale: 1 };
  };

  /** The answers of both, one after the other. */
  const both = async (ask: Ask) => {
    const { texts, reasons, logprobs, usage, error } = await session.ask(ask);
    expect(error).toBeUndefined();
    const whole = await session.whole.ask(ask);
    expect({ texts, reasons, logprobs, usage }).toEqual({
      texts: whole.texts,
      reasons: whole.reasons,
      logprobs: whole.logprobs,
      usage: whole.usage,
    });
    return whole;
  };

  it("gives the whole model's text and log-probabilities, bit for bit", async () => {
    const answer = await both({ prompt: tokens(40), maxTokens: 30, topLogprobs: 3 });
    expect(answer.logprobs[0]!.length).toBeGreaterThan(10);
  });

  it("keeps prefixes, several choices, samples with a seed, and scores of prompts", async () => {
    const prompt = tokens(200, 1);
    await both({ prompt, maxTokens: 8 });
    const cached = await session.ask({ prompt: [...prompt, 7, 8, 9], maxTokens: 8 });
    expect(cached.cachedTokens).toBeGreaterThan(100);
    const whole = await session.whole.ask({ prompt: [...prompt, 7, 8, 9], maxTokens: 8 });
    expect(cached.texts).toEqual(whole.texts);
    await both({ prompt: tokens(30, 2), choices: 3, sampling: { temperature: 1, seed: 5 } });
  });

  it("constrains text by a grammar", async () => {
    const { texts } = await both({ prompt: tokens(20, 3), format: "json_object", maxTokens: 60 });
    expect(texts[0]).toMatch(/^\{/);
  });

  it("answers many at once, cancels, and makes room by recomputing", async () => {
    // More tokens than the caches hold, so that sequences lose their cells and begin again.
    const asks = Array.from({ length: 6 }, (_, i) =>
      session.submit({ prompt: tokens(200, 10 + i), maxTokens: 80, minTokens: 80 }),
    );
    session.engine.cancel(asks[3]!.id);
    const answers = await Promise.all(asks.map(({ answer }) => answer));
    for (const [i, { error, usage }] of answers.entries()) {
      if (i === 3) continue;
      expect(error).toBeUndefined();
      expect(usage?.completionTokens).toBe(80);
    }
    await both({ prompt: tokens(40, 30), maxTokens: 20, topLogprobs: 1 });
  });

  it("embeds as the whole model does", async () => {
    const inputs = [tokens(30, 40), tokens(50, 41)];
    const [vectors, whole] = [await session.embed(inputs), await session.whole.embed(inputs)];
    // Rounding differs by about 1e-4: it depends on the cells of the cache, and so on earlier texts.
    expect(largestDifference(vectors, whole)).toBeLessThan(2e-3);
  });

  it("computes with adapters as the whole model does", async () => {
    // One that changes all stages, and one that does not change the stage between.
    for (const [seed, blocks] of [[1], [2, [0, 5]]] as const) {
      const ask = { prompt: tokens(40, 90 + seed), maxTokens: 20, topLogprobs: 3 };
      const adapter = await adapterOf(seed, blocks);
      const adapted = await both({ ...ask, adapter });
      const plain = await both(ask);
      expect(adapted.logprobs).not.toEqual(plain.logprobs);
      expect((await both({ ...ask, adapter: { ...adapter, scale: 0.5 } })).logprobs).not.toEqual(
        adapted.logprobs,
      );
    }
  });

  it("refuses an adapter that a stage cannot use, and answers others", async () => {
    const adapter = await adapterOf(3);
    const bytes = readFileSync(adapter.path);
    // In the stage between: of another shape than the matrix that it would change.
    bytes.write("attn_v", bytes.indexOf("blk.2.attn_q") + "blk.2.".length);
    bytes.write("attn_v", bytes.lastIndexOf("blk.2.attn_q") + "blk.2.".length);
    writeFileSync(adapter.path, bytes);
    const [refused] = await Promise.all([
      session.ask({ prompt: tokens(3), adapter }),
      session.ask({ prompt: tokens(30, 95), maxTokens: 20 }),
    ]);
    expect(refused.error).toMatchObject({
      code: "answer_failed",
      message: expect.stringContaining("the adapter cannot be used with this model"),
    });
    const beyond = await adapterOf(4, [6]);
    expect((await session.ask({ prompt: tokens(3), adapter: beyond })).error).toBeDefined();
    expect(session.crashes).toEqual([]);
    await both({ prompt: tokens(40, 96), maxTokens: 20, topLogprobs: 3 });
  });

  it("refuses deterministic requests with the reason", async () => {
    const same = await session.ask({ prompt: tokens(3), deterministic: true });
    expect(same.error).toMatchObject({
      param: "deterministic",
      message: expect.stringContaining("register it with the placement `whole`"),
    });
  });

  it("waits for a slow stage, and the answer is the same", async () => {
    const pids = [...session.stages.pids];
    const slow = setInterval(() => {
      process.kill(pids[0]!, "SIGSTOP");
      setTimeout(() => process.kill(pids[0]!, "SIGCONT"), SLOW_MS);
    }, 2 * SLOW_MS);
    try {
      await both({ prompt: tokens(40, 70), maxTokens: 20, topLogprobs: 3 });
    } finally {
      clearInterval(slow);
      await delay(2 * SLOW_MS);
    }
    expect(session.stages.pids).toEqual(pids);
    expect(session.crashes).toEqual([]);
  });

  it("ends a request at its deadline while a stage hangs, and answers on", async () => {
    const [hanging = 0] = session.stages.pids;
    process.kill(hanging, "SIGSTOP");
    const late = await session.ask({ prompt: tokens(40, 97), submit: { deadlineMs: 300 } });
    expect(late.error).toMatchObject({ code: "deadline_exceeded" });
    await both({ prompt: tokens(40, 98), maxTokens: 20, topLogprobs: 3 });
    expect(session.stages.pids).not.toContain(hanging);
  });

  it.each(["SIGKILL", "SIGSTOP"] as const)("answers on after %s of a stage", async (signal) => {
    const lent = await adapterOf(1);
    const asks = Array.from({ length: 3 }, (_, i) => ({
      prompt: tokens(40, 50 + i),
      maxTokens: 150,
      minTokens: 150,
      ...(i === 2 && { adapter: lent }),
    }));
    const before = session.stages.pids[1]!;
    const sent = asks.map(() => "");
    let isLost = false;
    const running = asks.map((ask, i) =>
      session.submit(ask, (event) => {
        if (event.type !== "delta" || isLost) return;
        sent[i] += event.text;
        isLost = i === 0 && sent[0]!.length > 5;
        if (isLost) process.kill(before, signal);
      }),
    );
    const answers = await Promise.all(running.map(({ answer }) => answer));
    expect(session.stages.pids).not.toContain(before);
    for (const [i, { error, texts, usage }] of answers.entries()) {
      expect(error).toBeUndefined();
      expect(usage?.completionTokens).toBe(150);
      expect(texts[0]?.startsWith(sent[i]!)).toBe(true);
    }
    expect(session.crashes).toEqual([]);
    const seed = signal === "SIGKILL" ? 60 : 61;
    await both({ prompt: tokens(40, seed), maxTokens: 20, topLogprobs: 3 });
    const adapter = await adapterOf(1);
    await both({ prompt: tokens(40, seed), maxTokens: 20, topLogprobs: 3, adapter });
  });
});

describe("an engine whose stages send bf16", () => {
  it("gives nearly the whole model's log-probabilities", async () => {
    const session = await StagedSession.open([2, 4], undefined, { ...OPTIONS, stageDtype: "bf16" });
    onTestFinished(() => session.close());
    const firstScores = async (at: EngineSession, seed: number) => {
      const { error, logprobs } = await at.ask({ prompt: tokens(40, seed), topLogprobs: 20 });
      expect(error).toBeUndefined();
      return logprobs[0]![0]!.top.map(({ logprob }) => logprob);
    };
    for (const seed of [80, 81, 82]) {
      const scores = await firstScores(session, seed);
      const whole = await firstScores(session.whole, seed);
      const difference = largestDifference([scores], [whole]);
      expect(difference).toBeLessThan(0.5);
      // As f32 they are the same, bit for bit.
      expect(difference).toBeGreaterThan(0);
    }
  });
});
