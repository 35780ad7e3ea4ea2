// holds: shard-scheduling

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expectNear, TOP_LOGPROBS } from "../../testing/near-scores.ts";
import { OPTIONS, StagedSession } from "../testing/staged-session.ts";

/** Tokens of a prompt that are computed in one step beside running answers. */
const CHUNK = 32;
const SEQUENCES = 4;

const tokens = (count: number, seed: number) =>
  Array.from({ length: count }, (_, i) => 5 + ((i * 37 + seed * 101) % 300));

describe("an engine in three stages", () => {
  let session: StagedSession;
  beforeAll(async () => {
    const options = { ...OPTIONS, maxSequences: SEQUENCES, prefillBudgetTokens: CHUNK };
    session = await StagedSession.open([2, 4], undefined, options);
  });
  afterAll(() => session?.close());

  it("gives a key with one request its turn before another key's many", async () => {
    const ends: string[] = [];
    const ask = async (fairKey: string, seed: number) => {
      const submit = { fairKey };
      const asked = { prompt: tokens(20, seed), maxTokens: 30, ignoreEnd: true, submit };
      expect((await session.ask(asked)).error).toBeUndefined();
      ends.push(fairKey);
    };
    const many = Array.from({ length: 3 * SEQUENCES }, (_, i) => ask("many", i));
    await Promise.all([...many, ask("one", 99)]);
    // In the order of their arrival it would be one of the last four.
    expect(ends.indexOf("one")).toBeLessThan(2 * SEQUENCES);
  });

  it("computes a long prompt in chunks, between which others get tokens", async () => {
    const long = { prompt: tokens(400, 7), maxTokens: 20, topLogprobs: TOP_LOGPROBS };
    const whole = await session.whole.ask(long);
    let between = 0;
    let isPrefilling = false;
    const begun = Promise.withResolvers<void>();
    const running = session.submit(
      { prompt: tokens(10, 8), maxTokens: 200, ignoreEnd: true },
      ({ type }) => {
        if (type !== "delta") return;
        begun.resolve();
        if (isPrefilling) between++;
      },
    );
    await begun.promise;
    isPrefilling = true;
    const asked = session.submit(long, ({ type }) => {
      if (type === "delta") isPrefilling = false;
    });
    const { error, logprobs } = await asked.answer;
    expect(error).toBeUndefined();
    expect(between).toBeGreaterThanOrEqual(Math.floor(long.prompt.length / CHUNK) - 2);
    expect(expectNear(logprobs[0]!, whole.logprobs[0]!)).toBeGreaterThan(0);
    session.engine.cancel(running.id);
    await running.answer;
  });
});
