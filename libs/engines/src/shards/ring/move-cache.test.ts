// holds: shard-moves

import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { Ask } from "../../testing/engine-session.ts";
import { StagedSession } from "../testing/staged-session.ts";

/** A prompt of this many tokens. */
const tokens = (count: number, seed: number) =>
  Array.from({ length: count }, (_, i) => 5 + ((i * 37 + seed * 101) % 300));

describe("a stage that moves", () => {
  let session: StagedSession;
  beforeAll(async () => {
    session = await StagedSession.open([2, 4]);
  });
  afterAll(() => session?.close());

  /** Another process has the stage, and the old one is left. */
  const move = async (stage: number) => {
    const before = session.stages.pids[stage]!;
    session.stages.move(stage);
    await eventually(() => session.stages.pids[stage] !== before);
    onTestFinished(() => expect(session.crashes).toEqual([]));
  };
  const long = (seed: number): Ask => {
    return { prompt: tokens(60, seed), maxTokens: 200, minTokens: 200, topLogprobs: 2 };
  };

  it("keeps the prefixes that were computed before", async () => {
    const prompt = tokens(200, 3);
    for (const each of [session, session.whole]) await each.ask({ prompt, maxTokens: 4 });
    await move(1);
    const ask = { prompt: [...prompt, 7, 8, 9], maxTokens: 20, topLogprobs: 2 };
    const cached = await session.ask(ask);
    expect(cached.cachedTokens).toBeGreaterThan(100);
    expect(cached.texts).toEqual((await session.whole.ask(ask)).texts);
  });

  it("continues answers in the middle, without an epoch's end", async () => {
    const whole = await Promise.all([1, 2].map((seed) => session.whole.ask(long(seed))));
    const epochs = session.traffic.lost;
    const asks = [1, 2].map((seed) => session.submit(long(seed)));
    await eventually(() => session.traffic.sent > 20);
    await move(0);
    await move(1);
    const answers = await Promise.all(asks.map(({ answer }) => answer));
    expect(answers.map(({ texts }) => texts)).toEqual(whole.map(({ texts }) => texts));
    expect(session.traffic.lost).toBe(epochs);
  });

  it("moves often without more listeners on the stages that stay", async () => {
    const warnings: string[] = [];
    const onWarning = ({ message }: Error) => warnings.push(message);
    process.on("warning", onWarning);
    onTestFinished(() => void process.off("warning", onWarning));
    for (let i = 0; i < 11; i++) await move(0);
    const { error } = await session.ask({ prompt: tokens(20, 5), maxTokens: 4 });
    expect(error).toBeUndefined();
    expect(warnings).toEqual([]);
  });

  it("begins again where the cache cannot be moved", async () => {
    const epochs = session.traffic.lost;
    const ask = session.submit(long(4));
    const { sent } = session.traffic;
    await eventually(() => session.traffic.sent > sent + 20);
    // It answers nothing more.
    process.kill(session.stages.pids[0]!, "SIGSTOP");
    await move(0);
    const { usage, error } = await ask.answer;
    expect(error).toBeUndefined();
    expect(usage?.completionTokens).toBe(200);
    expect(session.traffic.lost).toBe(epochs + 1);
  });
});
