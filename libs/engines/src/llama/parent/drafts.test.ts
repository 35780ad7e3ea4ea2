// holds: engine-drafts

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Answer, Ask } from "../../testing/engine-session.ts";
import { expectNear, TOP_LOGPROBS } from "../../testing/near-scores.ts";
import { demoWeights } from "../testing/demo-weights.ts";
import { TestSession } from "../testing/test-session.ts";

const PROMPT = "a loom weaves, and a loom weaves again: ".repeat(4);
const LONG = { maxTokens: 96, ignoreEnd: true };

/** Every way in which the next token may be chosen. */
const ASKS: readonly (Ask & { readonly name: string })[] = [
  { name: "greedy", prompt: PROMPT, ...LONG },
  { name: "sampled", prompt: PROMPT, ...LONG, sampling: { temperature: 0.7, seed: 11 } },
  { name: "several choices", prompt: PROMPT, choices: 3, sampling: { temperature: 1, seed: 2 } },
  {
    name: "penalties",
    prompt: PROMPT,
    ...LONG,
    sampling: { frequencyPenalty: 0.5, repetitionPenalty: 1.1 },
  },
  { name: "a grammar", prompt: PROMPT, maxTokens: 96, format: "json_object" },
  { name: "the last token allowed", prompt: PROMPT, maxTokens: 7, ignoreEnd: true },
];

describe("drafts on the tiny model", () => {
  let plain: TestSession;
  let drafting: TestSession;
  /** Whether all tokens of each choice were the same. */
  const compared: boolean[] = [];
  beforeAll(async () => {
    const options = { maxSequences: 4, contextTokens: 512 };
    plain = await TestSession.open({ ...options, decoding: { draftTokens: 0 } });
    drafting = await TestSession.open(options);
  });
  afterAll(() => Promise.all([plain.close(), drafting.close()]));

  it.each(ASKS)("$name: the answer is the one without drafts", async ({ name: _, ...ask }) => {
    const scored = { ...ask, topLogprobs: TOP_LOGPROBS };
    const [expected, answer] = [await plain.ask(scored), await drafting.ask(scored)];
    expect(answer.logprobs).toHaveLength(ask.choices ?? 1);
    // A draft's tokens are computed in one call, which rounds differently and may tip a near tie.
    for (const [choice, scores] of answer.logprobs.entries()) {
      const others = expected.logprobs[choice] ?? [];
      const isWhole = expectNear(scores, others) === others.length;
      if (isWhole) expect(essenceOf(answer, choice)).toEqual(essenceOf(expected, choice));
      compared.push(isWhole);
    }
  });

  it("nearly all answers are, token by token, those without drafts", () => {
    expect(compared.length).toBeGreaterThanOrEqual(ASKS.length);
    expect(compared.filter((isWhole) => !isWhole).length).toBeLessThanOrEqual(2);
  });

  it("a stop string within a draft cuts the text there", async () => {
    const whole = (await plain.ask({ prompt: PROMPT, ...LONG })).texts[0] ?? "";
    const stop = [whole.slice(60, 64)];
    const [expected, answer] = await Promise.all(
      [plain, drafting].map((session) => session.ask({ prompt: PROMPT, ...LONG, stop })),
    );
    expect(essenceOf(answer as Answer, 0)).toEqual(essenceOf(expected as Answer, 0));
  });

  it("the cells of refused tokens are freed, also of answers side by side", async () => {
    const asks = ASKS.map(({ name: _, ...ask }) => ask);
    const answers = await Promise.all(asks.map((ask) => drafting.ask(ask)));
    expect(answers.map(({ error }) => error)).toEqual(asks.map(() => undefined));
    // A conversation continues from cells that drafts have written.
    const first = await drafting.ask({ prompt: PROMPT, ...LONG });
    const next = { prompt: `${PROMPT}${first.texts[0]} and `, ...LONG };
    const answer = await drafting.ask(next);
    expect(answer.cachedTokens).toBeGreaterThan(0);
    expect(answer.texts).toEqual((await plain.ask(next)).texts);
  });

  it("are drafted and accepted in a cache that is one pool too", async () => {
    const pool = await TestSession.open({ maxSequences: 4, contextTokens: 512, kvTokens: 1024 });
    const ask = { ...ASKS[0], prompt: PROMPT, topLogprobs: TOP_LOGPROBS };
    const [answer, expected] = [await pool.ask(ask), await plain.ask(ask)];
    const { acceptedTokens } = pool.engine.load();
    await pool.close();
    expectNear(answer.logprobs[0] ?? [], expected.logprobs[0] ?? []);
    expect(acceptedTokens).toBeGreaterThan(0);
  });

  it("drafted and accepted tokens are counted", () => {
    const { draftTokens = 0, acceptedTokens = 0 } = drafting.engine.load();
    expect(acceptedTokens).toBeGreaterThan(0);
    expect(acceptedTokens).toBeLessThanOrEqual(draftTokens);
    expect(plain.engine.load()).toMatchObject({ draftTokens: 0, acceptedTokens: 0 });
  });
});

function essenceOf({ texts, reasons, logprobs }: Answer, choice: number) {
  return [texts[choice], reasons[choice], logprobs[choice]?.length];
}

const WEIGHTS = await demoWeights();

describe.skipIf(WEIGHTS === undefined)("drafts on SmolLM2-135M", () => {
  it("fields that are repeated from the prompt are drafted, and stay the same", async () => {
    const record = (name: string, city: string, id: number) =>
      `{"full_name": "${name}", "home_city": "${city}", "customer_number": ${id}}`;
    const rows = [
      record("Margaret Oyelaran-Whitfield", "Thessaloniki", 4_482_913),
      record("Bartholomew Quisenberry", "Ouagadougou", 9_120_377),
      record("Anastasia Featherstonehaugh", "Reykjavik", 7_734_056),
    ];
    const prompt = `Input:\n${rows.join("\n")}\nThe same again:\n${rows[0]}\n`;
    const ask = { prompt, maxTokens: 40, ignoreEnd: true };
    const options = { maxSequences: 4, contextTokens: 1024 };
    const plain = { ...options, decoding: { draftTokens: 0 } };
    const [[expected], { draftTokens: none }] = await answersOf(plain, [ask]);
    expect(none).toBe(0);
    expect(expected?.texts[0]).toContain("Quisenberry");
    // Side by side too, in calls that the drafts of one length share.
    const [answers, { acceptedTokens }] = await answersOf(options, [ask, { ...ask, choices: 3 }]);
    expect(answers.flatMap(({ texts }) => texts)).toEqual(Array(4).fill(expected?.texts[0]));
    // How many they are depends on what a token costs in a call on this machine.
    expect(acceptedTokens).toBeGreaterThan(0);
  });
});

/** The answers, one after the other, and what the engine counted. */
async function answersOf(options: Parameters<typeof TestSession.open>[0], asks: readonly Ask[]) {
  const session = await TestSession.open(options, WEIGHTS);
  try {
    const answers: Answer[] = [];
    for (const ask of asks) answers.push(await session.ask(ask));
    return [answers, session.engine.load()] as const;
  } finally {
    await session.close();
  }
}
