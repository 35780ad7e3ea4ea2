// holds: start-first-answer, api-reference-prompts

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { FIRST_QUESTION } from "@heddle/contracts/catalog";
import type { ChatMessage } from "@heddle/contracts/engine";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Answer } from "../../testing/engine-session.ts";
import { demoWeights } from "../testing/demo-weights.ts";
import { TestSession } from "../testing/test-session.ts";

const WEIGHTS = await demoWeights();

function dataOf(name: string): unknown {
  return JSON.parse(readFileSync(join(import.meta.dirname, "../../text/testdata", name), "utf8"));
}

/** The model's template knows no tools. */
function isPlain({ role, ...more }: ChatMessage): boolean {
  return role !== "tool" && !("tool_calls" in more);
}

describe.skipIf(WEIGHTS === undefined)("the llama engine on SmolLM2-135M", () => {
  let session: TestSession;
  beforeAll(async () => {
    session = await TestSession.open({ maxSequences: 8 }, WEIGHTS);
  });
  afterAll(() => session.close());

  it("continues English with English", async () => {
    const answer = await session.ask({ prompt: "The capital of France is", maxTokens: 4 });
    expect(answer.texts[0]).toContain("Paris");
  });

  it("first question: the answer at temperature 0 is right", async () => {
    const answer = await session.ask({
      prompt: [{ role: "user", content: FIRST_QUESTION }],
      sampling: { temperature: 0 },
      maxTokens: 64,
    });
    expect(answer.texts[0]?.trim()).toBe("The capital of France is Paris.");
  });

  it("prompts of 200 conversations have the tokens of the reference tokenizer", async () => {
    const { conversations } = dataOf("reference-prompts.json") as {
      readonly conversations: readonly { readonly messages: readonly ChatMessage[] }[];
    };
    // Counted by the PyPI package `tokenizers` over the vocabulary and the template of the file.
    const expected = dataOf("reference-counts.json") as readonly number[];
    const counts = await Promise.all(
      conversations.map(({ messages }) => session.count(messages.filter(isPlain))),
    );
    expect(counts).toHaveLength(200);
    expect(counts).toEqual(expected);
  });

  it("knows its context and template", async () => {
    expect(session.engine.info).toMatchObject({ contextTokens: 8192, vocabularySize: 49152 });
    const answer = await session.ask({
      prompt: [{ role: "user", content: "Say hello." }],
      maxTokens: 8,
    });
    // 31 tokens of ChatML around the words, the default system prompt among them.
    expect(answer.usage?.promptTokens).toBeGreaterThan(25);
  });

  it("spells characters of several tokens whole", async () => {
    const prompt = "Repeat: 😀 🎉 日本語 😀 🎉 日本語 😀 🎉 日本語 😀";
    const answer = await session.ask({ prompt, maxTokens: 24 });
    for (const delta of answer.deltas) expect(delta.includes("\uFFFD")).toBe(false);
  });

  it("answers with parseable JSON when asked to", async () => {
    const ask = (seed: number): Promise<Answer> =>
      session.ask({
        prompt: [{ role: "user", content: "Describe a cat as JSON with name and age." }],
        format: "json_object",
        maxTokens: 120,
        sampling: { temperature: 0.8, seed },
      });
    for (const answer of await Promise.all([1, 2, 3].map(ask))) {
      const text = answer.texts[0] ?? "";
      if (answer.reasons[0] === "stop") expect(typeof JSON.parse(text)).toBe("object");
      else expect(text.startsWith("{")).toBe(true);
    }
  });

  it("gives the same greedy text with a cached prefix as without", async () => {
    const prompt = "Once upon a time there was a weaver who kept a heddle. ".repeat(8);
    const first = await session.ask({ prompt, maxTokens: 16 });
    const again = await session.ask({ prompt, maxTokens: 16 });
    expect(first.cachedTokens).toBe(0);
    expect(again.cachedTokens).toBeGreaterThan(50);
    expect(again.texts).toEqual(first.texts);
  });
});
