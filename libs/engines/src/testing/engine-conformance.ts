import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { EngineSession } from "./engine-session.ts";

/** What an engine cannot do: it must refuse that by name, or fail. */
export interface ConformanceLimits {
  /** Its model may answer without a call that is required. */
  readonly requiredCalls?: false;
  readonly minTokens?: false;
  readonly embeddings?: false;
  readonly echo?: false;
}

const PROMPT = "The quick brown fox";
const MESSAGES = [{ role: "user", content: "Say anything." }] as const;
/** The tiny model has four control tokens, then a token for each byte. */
const byteToken = (byte: number) => 4 + byte;
const never = (token: number) => ({ token, bias: -100 });
/** Without bytes from 128 on: llama-server fails on text that is not UTF-8. */
const ASCII = Array.from({ length: 128 }, (_, at) => never(byteToken(128 + at)));
/** Without end tokens, so that an answer runs to its limit. */
const NO_END = [...[0, 1, 2, 3].map(never), ...ASCII];
const only = (text: string) =>
  [...Buffer.from(text)].map((byte) => ({ token: byteToken(byte), bias: 100 }));
const TOOL = {
  name: "set_level",
  description: "Sets the level.",
  parameters: JSON.stringify({
    type: "object",
    properties: { level: { enum: ["low", "high"] } },
    required: ["level"],
    additionalProperties: false,
  }),
} as const;

/** The session, once it is open. */
type Opened = () => EngineSession;

/** The contract of the port `Engine`, which every engine passes on the tiny model. */
export function engineConformance(
  name: string,
  open: () => Promise<EngineSession>,
  limits: ConformanceLimits = {},
): void {
  describe(`engine conformance: ${name}`, () => {
    let session: EngineSession;
    beforeAll(async () => {
      session = await open();
    });
    afterAll(() => session.close());
    drawsText(() => session);
    keepsConstraints(() => session, limits);
    endsRequests(() => session);
  });
}

function drawsText(at: Opened): void {
  it("events: started, deltas, an end for each choice, then the usage", async () => {
    const { order, usage, deltaTokens, reasons } = await at().ask({
      prompt: PROMPT,
      choices: 2,
      maxTokens: 8,
      sampling: { logitBias: NO_END, temperature: 1, seed: 1 },
    });
    expect([order[0], order.at(-1)]).toEqual(["started", "done"]);
    expect(order.filter((type) => type === "started" || type === "done")).toHaveLength(2);
    expect(reasons).toEqual(["length", "length"]);
    expect(usage?.completionTokens).toBe(16);
    expect(usage?.promptTokens).toBeGreaterThan(0);
    expect(deltaTokens).toBeLessThanOrEqual(16);
  });

  it("greedy: the same text twice, of a prompt and of messages", async () => {
    for (const prompt of [PROMPT, MESSAGES]) {
      const ask = { prompt, maxTokens: 6, sampling: { logitBias: NO_END } };
      const [first, second] = [await at().ask(ask), await at().ask(ask)];
      expect(first.error).toBeUndefined();
      expect(first.usage?.completionTokens).toBe(6);
      expect(second.texts).toEqual(first.texts);
    }
  });

  it("seed: the same draw again, and another with another seed", async () => {
    const draw = async (seed: number) => {
      const sampling = { temperature: 2, seed, logitBias: NO_END };
      return (await at().ask({ prompt: PROMPT, maxTokens: 12, sampling })).texts[0];
    };
    const first = await draw(7);
    expect(await draw(7)).toBe(first);
    expect(await draw(8)).not.toBe(first);
  });

  it("stop: the text ends before the string, and says so", async () => {
    const sampling = { temperature: 1, seed: 3, logitBias: only("ab") };
    const { texts, reasons } = await at().ask({
      prompt: PROMPT,
      maxTokens: 64,
      stop: ["ab"],
      sampling,
    });
    expect(reasons).toEqual(["stop"]);
    expect(texts[0] ?? "").toMatch(/^b*a*$/);
  });
}

function keepsConstraints(at: Opened, limits: ConformanceLimits): void {
  it("log-probabilities: one for each token, with alternatives in order", async () => {
    const { logprobs, error } = await at().ask({
      prompt: PROMPT,
      maxTokens: 4,
      topLogprobs: 3,
      sampling: { logitBias: NO_END },
    });
    expect(error).toBeUndefined();
    expect(logprobs[0]).toHaveLength(4);
    for (const { logprob, top } of logprobs[0] ?? []) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(top).toHaveLength(3);
      expect(top.map((each) => each.logprob)).toEqual(
        top.map((each) => each.logprob).toSorted((a, b) => b - a),
      );
    }
  });

  it("echo: the prompt once, each token scored, or refused by its name", async () => {
    for (const prompt of [PROMPT, [...Buffer.from(PROMPT)].map(byteToken)]) {
      let echoed = "";
      const scores: number[] = [];
      const { answer } = at().submit(
        {
          prompt,
          echo: true,
          topLogprobs: 1,
          choices: 2,
          maxTokens: 3,
          sampling: { temperature: 1, seed: 2, logitBias: NO_END },
        },
        (event) => {
          if (event.type !== "prompt") return;
          echoed += event.text;
          scores.push(...(event.logprobs ?? []).map(({ logprob }) => logprob));
        },
      );
      const { error, order, logprobs, usage } = await answer;
      if (limits.echo === false) {
        expect(error).toMatchObject({ code: "unsupported_parameter", param: "echo" });
        continue;
      }
      expect(error).toBeUndefined();
      expect(echoed).toBe(PROMPT);
      expect(scores).toHaveLength(usage?.promptTokens ?? 0);
      expect(scores.slice(1).every((score) => score < 0)).toBe(true);
      expect(order.lastIndexOf("prompt")).toBeLessThan(order.indexOf("delta"));
      expect(logprobs.map((each) => each.length)).toEqual([3, 3]);
    }
  });

  it("json_schema: the text is of the schema", async () => {
    const { texts, error } = await at().ask({
      prompt: MESSAGES,
      maxTokens: 64,
      format: { kind: "json_schema", schema: TOOL.parameters },
      sampling: { temperature: 1, seed: 5 },
    });
    expect(error).toBeUndefined();
    expect(["low", "high"]).toContain(JSON.parse(texts[0] ?? "").level);
  });

  it("tools: a required call has the port's form", async () => {
    const { texts, error, reasons } = await at().ask({
      prompt: MESSAGES,
      tools: [TOOL],
      toolUse: { choice: "required", names: [TOOL.name], parallel: false },
      maxTokens: 1_024,
      sampling: { temperature: 1, seed: 5, logitBias: ASCII },
    });
    if (limits.requiredCalls === false && error) {
      return expect(error.message).toContain("without the call of a tool that was required");
    }
    expect(error).toBeUndefined();
    expect(["stop", "tool_calls"]).toContain(reasons[0]);
    expect(texts[0]).toMatch(
      /^<tool_call>\n\{"name": "set_level", "arguments": \{\s*"level":\s*"(low|high)"\s*\}\}\n<\/tool_call>$/,
    );
  });

  it("min_tokens: honoured, or refused by its name", async () => {
    const { error, usage } = await at().ask({
      prompt: MESSAGES,
      minTokens: 5,
      maxTokens: 8,
      sampling: { logitBias: [{ token: 2, bias: 100 }] },
    });
    if (limits.minTokens === false) {
      expect(error).toMatchObject({ code: "unsupported_parameter", param: "min_tokens" });
    } else expect(usage?.completionTokens).toBeGreaterThanOrEqual(5);
  });

  it.runIf(limits.embeddings !== false)("embeddings: a vector for each input", async () => {
    const [one, other, again] = await at().embed(["abc", "xyz", "abc"]);
    expect(one?.length).toBeGreaterThan(0);
    expect(other).toHaveLength(one?.length ?? 0);
    expect(again).toEqual(one);
    expect(other).not.toEqual(one);
  });
}

function endsRequests(at: Opened): void {
  it("cancel: the request ends as cancelled, and its place is free", async () => {
    const begun = Promise.withResolvers<void>();
    const { id, answer } = at().submit(
      { prompt: PROMPT, maxTokens: 3_000, sampling: { logitBias: NO_END } },
      ({ type }) => type === "delta" && begun.resolve(),
    );
    await begun.promise;
    at().engine.cancel(id);
    at().engine.cancel(id + 1_000);
    expect((await answer).error?.code).toBe("cancelled");
    await eventually(() => at().engine.load().running === 0, "no sequence runs");
  });

  it("deadline: a request that takes longer fails with it", async () => {
    const { error } = await at().ask({
      prompt: PROMPT,
      maxTokens: 3_000,
      sampling: { logitBias: NO_END },
      submit: { deadlineMs: 200 },
    });
    expect(error?.code).toBe("deadline_exceeded");
  });

  it("a prompt beyond the context is refused, and the engine continues", async () => {
    const long = await at().ask({ prompt: "x".repeat(20_000), maxTokens: 1 });
    expect(long.order).toEqual(["failed"]);
    expect(long.error?.code).toBe("context_length_exceeded");
    const ask = { prompt: PROMPT, maxTokens: 2, sampling: { logitBias: NO_END } };
    expect((await at().ask(ask)).usage?.completionTokens).toBe(2);
  });

  it("requests side by side: each has its own whole answer", async () => {
    const answers = await Promise.all(
      ["a", "b", "c"].map((letter) =>
        at().ask({ prompt: letter, maxTokens: 5, sampling: { logitBias: only(letter) } }),
      ),
    );
    expect(answers.map(({ texts }) => texts[0])).toEqual(["aaaaa", "bbbbb", "ccccc"]);
    expect(at().engine.load().running).toBe(0);
    expect(at().engine.load().generatedTokens).toBeGreaterThan(0);
  });
}
