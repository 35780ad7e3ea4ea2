// holds: engine-continuation

import type { EngineEvent, SentChoice } from "@heddle/contracts/engine";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Ask } from "../../testing/engine-session.ts";
import { CHATML_TEMPLATE } from "../../text/template-choice.ts";
import { TestSession } from "../testing/test-session.ts";

// An answer is cut behind each of its events, as by the loss of its engine, and continued.

/** As Qwen3's, whose turn begins within the reasoning. */
const REASONING = `${CHATML_TEMPLATE}{% if add_generation_prompt %}<think>\n{% endif %}`;
const OPTIONS = { maxSequences: 4, contextTokens: 512, chatTemplate: REASONING };
const LENGTH = 24;

const biased = (text: string, bias: number) =>
  [...new Set(Buffer.from(text))].map((byte) => ({ token: 4 + byte, bias }));
const LETTERS = biased("abcdef", 12);
const seeded = { temperature: 1, seed: 7, logitBias: LETTERS };
const weather = {
  name: "weather",
  parameters: JSON.stringify({
    type: "object",
    properties: { city: { enum: ["Oslo", "Rome"] }, days: { type: "integer", maximum: 9 } },
    required: ["city", "days"],
  }),
};
const user = [{ role: "user", content: "what is it like?" }] as const;
const schema = JSON.stringify({
  type: "object",
  properties: { name: { type: "string", maxLength: 5 }, on: { type: "boolean" } },
  required: ["name", "on"],
  additionalProperties: false,
});

/** The limit is within an element. */
const list = JSON.stringify({
  type: "array",
  items: {
    type: "object",
    properties: { value: { const: "abcdefghij" } },
    required: ["value"],
    additionalProperties: false,
  },
});

const ASKS: Record<string, Ask> = {
  greedy: { prompt: "hello there", ignoreEnd: true },
  seeded: { prompt: "hello there", ignoreEnd: true, sampling: { ...seeded, topP: 0.9 } },
  penalties: {
    prompt: "hello there",
    ignoreEnd: true,
    sampling: {
      ...seeded,
      presencePenalty: 1,
      frequencyPenalty: 1.5,
      repetitionPenalty: 1.3,
    },
  },
  json_schema: {
    prompt: user,
    maxTokens: 80,
    format: { kind: "json_schema", schema },
    sampling: { temperature: 1.5, seed: 3 },
  },
  "a list that its limit ends": {
    prompt: "hello",
    maxTokens: 60,
    format: { kind: "json_schema", schema: list },
    sampling: { temperature: 1, seed: 3, logitBias: biased("{,", 40) },
  },
  tools: {
    prompt: user,
    tools: [weather],
    toolUse: { choice: "required", names: ["weather"], parallel: true },
    maxTokens: 80,
    sampling: { temperature: 1.5, seed: 3 },
  },
  "bytes of characters": {
    prompt: "hello",
    ignoreEnd: true,
    sampling: { temperature: 1, seed: 5, logitBias: biased("é🙂", 30) },
  },
  "three choices that end apart": {
    prompt: "hello",
    choices: 3,
    stop: ["a"],
    maxTokens: 20,
    sampling: seeded,
  },
  "a least length": {
    prompt: "hello",
    minTokens: 9,
    sampling: { logitBias: [{ token: 2, bias: 100 }] },
  },
  "reasoning with a bound": { prompt: user, reasoningTokens: 6, sampling: seeded },
  "a prompt that is sent back": { prompt: "hello", echo: true, topLogprobs: 1, sampling: seeded },
};

let session: TestSession;
beforeAll(async () => {
  session = await TestSession.open(OPTIONS);
});
afterAll(() => session.close());

async function eventsOf(ask: Ask): Promise<EngineEvent[]> {
  const events: EngineEvent[] = [];
  await session.submit(ask, (event) => events.push(event)).answer;
  return events;
}

/** What a reader of these events has. */
function sentIn(events: readonly EngineEvent[], choices = 1): SentChoice[] {
  return Array.from({ length: choices }, (_, choice) => {
    const own = events.filter((event) => "choice" in event && event.choice === choice);
    const deltas = own.filter((event) => event.type === "delta");
    return {
      tokens: deltas.flatMap(({ tokenIds = [] }) => tokenIds),
      characters: deltas.reduce((sum, { text }) => sum + text.length, 0),
      isFinished: deltas.length < own.length,
      isCut: deltas.some(({ isCut }) => isCut),
    };
  });
}

/** Indexed by choice: everything of it, however it was divided into events. */
function essence(events: readonly EngineEvent[], choices = 1) {
  const done = events.find((event) => event.type === "done");
  const failed = events.find((event) => event.type === "failed");
  const { promptTokens, completionTokens } = done?.usage ?? {};
  const whole = Array.from({ length: choices }, (_, choice) => {
    const own = events.filter((event) => "choice" in event && event.choice === choice);
    const deltas = own.filter((event) => event.type === "delta");
    return {
      text: deltas.map(({ text }) => text).join(""),
      tokenIds: deltas.flatMap(({ tokenIds = [] }) => tokenIds),
      tokens: deltas.reduce((sum, { tokens }) => sum + tokens, 0),
      logprobs: deltas.flatMap(({ logprobs = [] }) => logprobs),
      ends: own.filter((event) => event.type === "finish").map(({ id: _id, ...end }) => end),
    };
  });
  return { whole, promptTokens, completionTokens, failed: failed?.error };
}

/** Compares the answer with the same one cut and continued at every event. */
async function expectSameWhereverCut(ask: Ask): Promise<readonly EngineEvent[]> {
  const asked: Ask = { maxTokens: LENGTH, topLogprobs: 1, ...ask, deterministic: true };
  const undisturbed = await eventsOf(asked);
  const expected = essence(undisturbed, ask.choices);
  expect(expected.failed).toBeUndefined();
  const first = undisturbed.findIndex(({ type }) => type === "delta");
  for (let cut = first; cut < undisturbed.length - 1; cut++) {
    const before = undisturbed.slice(0, cut + 1);
    const sent = sentIn(before, ask.choices);
    const after = await eventsOf({ ...asked, echo: undefined, sent });
    const joined = [...before, ...after];
    expect(essence(joined, ask.choices), `cut behind event ${cut}`).toEqual(expected);
  }
  return undisturbed;
}

describe("a continued answer is the undisturbed one", () => {
  it.each(Object.keys(ASKS))("%s", async (name) => {
    const events = await expectSameWhereverCut(ASKS[name] as Ask);
    expect(events.length).toBeGreaterThan(8);
  });

  it("with stop strings that are held back, and one that ends it", async () => {
    const [choice] = essence(
      await eventsOf({ ...ASKS["seeded"], deterministic: true } as Ask),
    ).whole;
    const { text = "" } = choice ?? {};
    const parts = [4, 9, 14].map((at) => text.slice(at, at + 3));
    const stop = [...parts.slice(0, 2).map((part) => `${part}|`), parts[2] as string];
    const events = await expectSameWhereverCut({ ...ASKS["seeded"], prompt: "hello there", stop });
    expect(events).toContainEqual(expect.objectContaining({ type: "finish", reason: "stop" }));
    expect(events.some((event) => event.type === "delta" && event.tokens > 1)).toBe(true);
  });

  it("without log-probabilities, where its context is full", async () => {
    const prompt = "x".repeat(OPTIONS.contextTokens - 12);
    const ask = { prompt, ignoreEnd: true, topLogprobs: undefined, maxTokens: undefined };
    const events = await expectSameWhereverCut(ask);
    expect(events).toContainEqual(expect.objectContaining({ type: "finish", reason: "length" }));
  });
});

describe("a continued answer", () => {
  const base = { prompt: "hello", maxTokens: 8 };
  const sent = (tokens: readonly number[]) => [{ tokens, characters: 0, isFinished: false }];
  const failure = async (ask: Ask) => essence(await eventsOf({ ...base, ...ask })).failed;

  it("is refused where it does not fit, or is not one of this request", async () => {
    const tokens = Array.from({ length: 9 }, () => 100);
    const refusals = [
      { ...base, sent: sent(tokens) },
      { ...base, sent: sent([100_000]) },
      { ...base, sent: [], choices: 2 },
    ];
    for (const ask of refusals) {
      expect(await failure(ask)).toMatchObject({ code: "invalid_value", param: "sent" });
    }
    const format = { kind: "json_schema", schema } as const;
    expect(await failure({ ...base, format, sent: sent([100]) })).toMatchObject({
      code: "answer_failed",
    });
    expect((await session.ask(base)).error).toBeUndefined();
  });

  it("is refused where its context was shifted", async () => {
    const contextTokens = 64;
    const shifting = await TestSession.open({ contextTokens, decoding: { contextShift: true } });
    const ask = { prompt: [100, 101], maxTokens: 200 };
    try {
      const fits = await shifting.ask({ ...ask, sent: sent(Array(61).fill(100)) });
      expect(fits.usage?.completionTokens).toBeGreaterThan(61);
      const { error } = await shifting.ask({ ...ask, sent: sent(Array(62).fill(100)) });
      expect(error).toMatchObject({ code: "invalid_value", param: "sent" });
    } finally {
      await shifting.close();
    }
  });
});
