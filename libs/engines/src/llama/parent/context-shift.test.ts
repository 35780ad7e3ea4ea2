// holds: engine-context-shift

import type { EngineOptions, TokenLogprob } from "@heddle/contracts/engine";
import { expect, it } from "vitest";
import type { Ask } from "../../testing/engine-session.ts";
import { expectNear, TOP_LOGPROBS } from "../../testing/near-scores.ts";
import { TestSession } from "../testing/test-session.ts";

const CONTEXT = 64;
const LENGTH = 250;
const SLOTS = { maxSequences: 4, contextTokens: CONTEXT };
/** Slots of 256 tokens do not fit: the sequences share one pool. */
const POOL = { ...SLOTS, kvTokens: 256 };
const SHIFTING = { decoding: { contextShift: true } };

const byteToken = (letter: string) => 4 + letter.charCodeAt(0);
/** So that each token is its letter. */
const logitBias = [..."abcdefgh"].map((letter) => ({ token: byteToken(letter), bias: 30 }));
const tokensOf = (text: string) => [...text].map(byteToken);
/** The last one is longer than half of the context. */
const PROMPTS = ["QXZ QXZ", "weft and warp", "y".repeat(20), "0123456789".repeat(5)].map(tokensOf);

const askFor = (prompt: readonly number[], maxTokens = LENGTH): Ask => ({
  prompt,
  maxTokens,
  topLogprobs: TOP_LOGPROBS,
  sampling: { logitBias },
});

async function withSession<T>(options: EngineOptions, use: (session: TestSession) => Promise<T>) {
  const session = await TestSession.open(options);
  return use(session).finally(() => session.close());
}

/** The scores of calls that each fill the context, with what the one before them would keep as prompt. */
async function oneAfterTheOther(session: TestSession, prompt: readonly number[]) {
  const scores: TokenLogprob[] = [];
  const kept = Math.min(prompt.length, CONTEXT / 2);
  let tokens = [...prompt];
  while (scores.length < LENGTH) {
    const ask = { ...askFor(tokens, LENGTH - scores.length), deterministic: true };
    const [part = []] = (await session.ask(ask)).logprobs;
    expect(part.length).toBeGreaterThan(0);
    scores.push(...part);
    tokens.push(...part.map(({ token }) => byteToken(token)));
    const behind = tokens.slice(kept);
    tokens = [...tokens.slice(0, kept), ...behind.slice(Math.ceil(behind.length / 2))];
  }
  return scores;
}

const expected = await withSession(SLOTS, async (session) => {
  const all = [];
  for (const prompt of PROMPTS) all.push(await oneAfterTheOther(session, prompt));
  return all;
});

it("context shift: a deterministic answer is that of calls with what is kept", async () => {
  await withSession({ ...SLOTS, ...SHIFTING }, async (session) => {
    const asks = PROMPTS.map((prompt) => ({ ...askFor(prompt), deterministic: true }));
    const answers = await Promise.all(asks.map((ask) => session.ask(ask)));
    expect(answers.map(({ logprobs }) => logprobs[0])).toEqual(expected);
    expect(answers.map(({ usage }) => usage)).toMatchObject(
      PROMPTS.map(({ length }) => ({ promptTokens: length, completionTokens: LENGTH })),
    );
  });
});

it.each([
  ["slots", SLOTS],
  ["a small pool", POOL],
])("context shift: answers side by side, with drafts, in %s", async (_, options) => {
  await withSession({ ...options, ...SHIFTING }, async (session) => {
    const answers = await Promise.all(PROMPTS.map((prompt) => session.ask(askFor(prompt))));
    expect(answers.map(({ reasons }) => reasons)).toEqual(PROMPTS.map(() => ["length"]));
    const compared = answers.map(({ logprobs: [scores = []] }, i) => {
      expect(scores).toHaveLength(LENGTH);
      // Up to a near tie that is drawn otherwise.
      return expectNear(scores, expected[i] ?? []);
    });
    // At least one has passed several shifts.
    expect(Math.max(...compared)).toBeGreaterThan(3 * CONTEXT);
  });
});

it("context shift: without it, or without max_tokens, answers end with the context", async () => {
  const ask = (session: TestSession, maxTokens?: number) =>
    session.ask({ ...askFor(PROMPTS[0] ?? []), maxTokens });
  const whole = { reasons: ["length"], usage: { completionTokens: CONTEXT - 7 } };
  await withSession(SLOTS, async (session) => {
    expect(await ask(session, LENGTH)).toMatchObject(whole);
  });
  await withSession({ ...SLOTS, ...SHIFTING }, async (session) => {
    expect(await ask(session)).toMatchObject(whole);
  });
});
