// holds: engine-deterministic

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Answer, Ask } from "../../testing/engine-session.ts";
import { demoWeights } from "../testing/demo-weights.ts";
import { TestSession } from "../testing/test-session.ts";

const WORDS = ["loom", "warp", "weft", "heddle", "shuttle", "thread", "cloth", "reed", "treadle"];

/** A prompt of this many words, another one for each seed. */
function words(count: number, seed: number): string {
  let state = seed;
  const draw = () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return WORDS[(state >>> 16) % WORDS.length];
  };
  return Array.from({ length: count }, draw).join(" ");
}

/** Prompts of many lengths; those of one half continue others. */
function asksOf(count: number, longest: number): Ask[] {
  return Array.from({ length: count }, (_, i) => {
    const begin = words(Math.ceil((longest * ((i >> 1) + 1)) / (count / 2)), (i >> 1) + 1);
    const prompt = i % 2 === 0 ? begin : `${begin} ${words(3 + (i % 7), i)}`;
    const sampling = i % 3 === 0 ? { temperature: 0.8, seed: i } : {};
    return {
      prompt,
      maxTokens: 12,
      ignoreEnd: true,
      topLogprobs: 3,
      deterministic: true,
      sampling,
    };
  });
}

const essence = ({ texts, logprobs, error }: Answer) => ({ texts, logprobs, error });

async function oneByOne(session: TestSession, asks: readonly Ask[]) {
  const answers = [];
  for (const ask of asks) answers.push(essence(await session.ask(ask)));
  return answers;
}

/** Other requests, which end and begin while the answers are drawn. */
async function amid(session: TestSession, asks: readonly Ask[]) {
  const noise = asks.map(({ prompt, maxTokens = 0 }, i) =>
    session.ask({ prompt: `${prompt}`, maxTokens: maxTokens * (1 + (i % 3)), ignoreEnd: true }),
  );
  const answers = await Promise.all(asks.map((ask) => session.ask(ask)));
  await Promise.all(noise);
  return answers.map(essence);
}

/**
 * Two answers at once in as many slots, which two urgent requests take in their middle. Gives the
 * answers, and how many of them had lost their slot.
 */
async function preempted(session: TestSession, asks: readonly Ask[]) {
  const answers: object[] = [];
  let preemptions = 0;
  for (let at = 0; at < asks.length; at += SLOTS) {
    const begun = new Set<Ask>();
    const areBegun = Promise.withResolvers<void>();
    let most = SLOTS;
    const submit = (ask: Ask) =>
      session.submit(ask, ({ type }) => {
        if (type === "started") begun.add(ask);
        if (type === "done") begun.delete(ask);
        if (type === "delta" && begun.size === SLOTS) areBegun.resolve();
        most = Math.max(most, begun.size);
      }).answer;
    const low = asks.slice(at, at + SLOTS).map(submit);
    // One may end before the other begins.
    await Promise.race([areBegun.promise, ...low]);
    const urgent = low.map((_, i) =>
      submit({ prompt: words(30, at + i), maxTokens: 4, submit: { priority: 1_000 } }),
    );
    answers.push(...(await Promise.all(low)).map(essence));
    await Promise.all(urgent);
    preemptions += most - SLOTS;
  }
  return { answers, preemptions };
}

const SLOTS = 2;
const contextTokens = 1_024;
const TINY = { model: "the tiny model", weights: undefined, count: 200, longest: 40 };
/** Absent where its weights cannot be had, as a printed line says. */
const SMALL = { model: "SmolLM2-135M", weights: await demoWeights(), count: 2, longest: 90 };
const MODELS = SMALL.weights === undefined ? [TINY] : [TINY, SMALL];

describe.each(MODELS)("deterministic answers of $model", ({ weights, count, longest }) => {
  const asks = asksOf(count, longest);
  let alone: TestSession;
  let shared: TestSession;
  let expected: object[];
  beforeAll(async () => {
    alone = await TestSession.open({ maxSequences: 1, contextTokens }, weights);
    const options = { maxSequences: 4, maxQueued: 2 * count, contextTokens };
    shared = await TestSession.open(options, weights);
    expected = await oneByOne(alone, asks);
  });
  afterAll(() => Promise.all([alone.close(), shared.close()]));

  it("are the same in parallel, amid other requests, on another replica", async () => {
    expect(await amid(shared, asks)).toEqual(expected);
  });

  it("are the same where their prompts are cached", async () => {
    const cached = await Promise.all(asks.map((ask) => shared.ask(ask)));
    expect(cached.map(essence)).toEqual(expected);
    expect(cached.some(({ cachedTokens }) => cachedTokens > 0)).toBe(true);
    expect((await oneByOne(alone, asks.toReversed())).toReversed()).toEqual(expected);
  });

  it("are the same after preemptions", async () => {
    const session = await TestSession.open({ maxSequences: SLOTS, contextTokens }, weights);
    const { answers, preemptions } = await preempted(session, asks).finally(() => session.close());
    expect(answers).toEqual(expected);
    // Others ended before an urgent request came.
    expect(preemptions).toBeGreaterThan(count / 4);
  });
});

describe("deterministic requests", () => {
  const options = { maxSequences: 2, contextTokens: 1_024 };
  const prompt = words(50, 99);

  it("of every kind answer the same as alone", async () => {
    const base = { prompt, maxTokens: 24, topLogprobs: 2, deterministic: true };
    const asks: Ask[] = [
      { ...base, choices: 3, sampling: { temperature: 1, seed: 5 } },
      { ...base, format: "json_object", maxTokens: 40 },
      { ...base, echo: true },
      { ...base, prompt: words(2, 1) },
      { ...base, prompt: `${prompt} again`, sampling: { repetitionPenalty: 1.2 } },
    ];
    const alone = await TestSession.open(options);
    const expected = await oneByOne(alone, asks).finally(() => alone.close());
    expect(await answersOf({ ...options, maxSequences: 8 }, asks)).toEqual(expected);
  });

  it("are those with a seed, or all, where the model's options say so", async () => {
    const seeded = {
      prompt,
      maxTokens: 16,
      ignoreEnd: true,
      sampling: { seed: 1 },
      topLogprobs: 1,
    };
    const [expected] = await answersOf(options, [{ ...seeded, deterministic: true }]);
    const noise = [2, 3, 4].map((seed) => ({ prompt: words(50, seed), maxTokens: 30 }));
    for (const deterministic of ["seed", "always"] as const) {
      const decoding = { deterministic };
      const [answer] = await answersOf({ ...options, decoding }, [seeded, ...noise]);
      expect(answer).toEqual(expected);
    }
  });

  it("are refused by a replica whose cache is one pool", async () => {
    const pool = { maxSequences: 4, contextTokens: 512, kvTokens: 1_024 };
    const [answer] = await answersOf(pool, [{ prompt, deterministic: true }]);
    expect(answer?.error).toMatchObject({ code: "invalid_value", param: "deterministic" });
  });
});

async function answersOf(options: Parameters<typeof TestSession.open>[0], asks: readonly Ask[]) {
  const session = await TestSession.open(options);
  try {
    return (await Promise.all(asks.map((ask) => session.ask(ask)))).map(essence);
  } finally {
    await session.close();
  }
}
