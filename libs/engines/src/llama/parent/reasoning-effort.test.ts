import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Ask } from "../../testing/engine-session.ts";
import { CHATML_TEMPLATE } from "../../text/template-choice.ts";
import { TestSession } from "../testing/test-session.ts";

/** End tokens, without which an answer runs to its limit. */
const NO_END = [0, 1, 2, 3].map((token) => ({ token, bias: -100 }));
const only = (text: string) =>
  [...Buffer.from(text)].map((byte) => ({ token: 4 + byte, bias: 60 }));

/** As Qwen3's: thinking is on unless it is turned off, and the turn begins within it. */
const SWITCHED = `${CHATML_TEMPLATE}{% if add_generation_prompt %}<think>
{% if enable_thinking is defined and enable_thinking is false %}
</think>

{% endif %}{% endif %}`;
/** As gpt-oss's: the effort is a part of the prompt. */
const EFFORTS = `{{ 'effort ' + (reasoning_effort or 'medium') }}{{ 'QZQZ' if reasoning_effort == 'high' }}${CHATML_TEMPLATE}{# <think> #}`;

/** As gpt-oss's, with its channels. */
const CHANNELS = `${EFFORTS}{# <|start|> <|channel|>analysis<|message|> commentary to=functions. #}`;

const sessions = new Map<string, TestSession>();
beforeAll(async () => {
  const templates = { switched: SWITCHED, efforts: EFFORTS, channels: CHANNELS };
  for (const [name, chatTemplate] of Object.entries(templates)) {
    sessions.set(name, await TestSession.open({ chatTemplate }));
  }
  sessions.set("plain", await TestSession.open());
});
afterAll(async () => {
  for (const session of sessions.values()) await session.close();
});

type Effort = "none" | "minimal" | "low" | "high";

function ask(name: string, effort: Effort | undefined, more: Partial<Ask> = {}) {
  const { tools } = more;
  const messages = [{ role: "user", content: "a" }];
  const input = { kind: "chat", messages, effort, tools };
  const given = { prompt: "", maxTokens: 40, sampling: { logitBias: NO_END }, ...more };
  return (sessions.get(name) as TestSession).ask({ ...given, input } as unknown as Ask);
}

describe("reasoning: its bound", () => {
  const sampling = { logitBias: only("xyz") };

  it("ends it after that many tokens, and the answer follows", async () => {
    for (const reasoningTokens of [0, 1, 9]) {
      const { texts, usage } = await ask("switched", undefined, { reasoningTokens, sampling });
      const [, thought = "", answer = ""] =
        /^<think>([xyz]*)\n<\/think>\n\n([xyz]*)$/.exec(texts[0] ?? "") ?? [];
      expect(thought).toHaveLength(reasoningTokens);
      expect(usage?.completionTokens).toBe(40);
      expect(answer.length).toBeGreaterThan(5);
    }
  });

  it("never cuts a character", async () => {
    const { texts } = await ask("switched", undefined, {
      reasoningTokens: 4,
      sampling: { logitBias: only("\u{1f642}").map(({ token }) => ({ token, bias: 90 })) },
      maxTokens: 20,
      format: { kind: "json_schema", schema: '{"const":1}' },
    });
    expect(texts[0]).toMatch(/^<think>[^\ufffd]+\n<\/think>\s+1$/);
  });

  it("holds before JSON of a schema and before a call, and for each of several choices", async () => {
    const json = await ask("switched", undefined, {
      reasoningTokens: 7,
      choices: 3,
      maxTokens: 200,
      sampling: { temperature: 1, seed: 4, logitBias: NO_END },
      format: { kind: "json_schema", schema: '{"enum":["one","two"]}' },
    });
    expect(json.error).toBeUndefined();
    for (const text of json.texts) expect(text).toMatch(/<\/think>\s*"(one|two)"$/);
    const parameters = '{"type":"object","properties":{},"additionalProperties":false}';
    const call = await ask("switched", undefined, {
      reasoningTokens: 3,
      maxTokens: 200,
      toolUse: { choice: "auto", names: ["f"], parallel: false },
      tools: [{ name: "f", parameters }],
    });
    expect(call.error).toBeUndefined();
    expect(call.texts[0]).toContain("</think>");
  });
});

describe("reasoning: its effort", () => {
  it("none turns thinking off where the template can, and the answer begins at once", async () => {
    const off = await ask("switched", "none");
    const on = await ask("switched", undefined);
    expect(on.texts[0]).toMatch(/^<think>/);
    expect(off.texts[0]).not.toContain("think>");
    expect(off.usage?.promptTokens).toBeGreaterThan(on.usage?.promptTokens ?? 0);
  });

  it("is a number of tokens where the template knows no efforts", async () => {
    const { texts } = await ask("switched", "minimal", {
      maxTokens: 300,
      sampling: { logitBias: only("x") },
    });
    expect(/^<think>(x*)\n<\/think>/.exec(texts[0] ?? "")?.[1]).toHaveLength(256);
    const high = await ask("switched", "high", {
      maxTokens: 300,
      sampling: { logitBias: only("x") },
    });
    expect(high.texts[0]).toBe(`<think>${"x".repeat(300)}`);
  });

  it("is the template's where it knows efforts, and nothing ends the reasoning", async () => {
    const tokens = async (effort: Effort | undefined) =>
      (await ask("efforts", effort)).usage?.promptTokens ?? 0;
    const medium = await tokens(undefined);
    expect(await tokens("low")).not.toBe(medium);
    expect(await tokens("minimal")).toBe(await tokens("low"));
    expect(await tokens("high")).not.toBe(medium);
  });

  it("is refused by a model that does not reason, unless its value is none", async () => {
    const refusal = (param: string) => ({ code: "unsupported_parameter", param });
    const { error } = await ask("plain", "high");
    expect(error).toMatchObject(refusal("reasoning_effort"));
    const limited = await ask("plain", undefined, { reasoningTokens: 5 });
    expect(limited.error).toMatchObject(refusal("thinking_token_budget"));
    expect((await ask("plain", "none")).error).toBeUndefined();
  });

  it("cannot be a number of tokens where the reasoning is a channel", async () => {
    const { error } = await ask("channels", "low", { reasoningTokens: 5 });
    expect(error).toMatchObject({
      code: "unsupported_parameter",
      param: "thinking_token_budget",
    });
    expect((await ask("channels", "low")).error).toBeUndefined();
  });
});
