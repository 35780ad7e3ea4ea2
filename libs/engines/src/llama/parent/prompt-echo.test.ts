import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TokenLogprob } from "@heddle/contracts/engine";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import type { Answer, Ask } from "../../testing/engine-session.ts";
import { TestSession } from "../testing/test-session.ts";

/** End tokens, without which an answer runs to its limit. */
const NO_END = [0, 1, 2, 3].map((token) => ({ token, bias: -100 }));
const byteToken = (letter: string) => 4 + letter.charCodeAt(0);

let session: TestSession;
beforeAll(async () => {
  session = await TestSession.open({ kvTokens: 8_192, maxSequences: 4 });
});
afterAll(() => session.close());

interface Echoed extends Answer {
  readonly prompt: string;
  readonly scores: readonly TokenLogprob[];
  readonly types: readonly string[];
}

async function echo(ask: Ask, at = session): Promise<Echoed> {
  let prompt = "";
  const scores: TokenLogprob[] = [];
  const types: string[] = [];
  const { answer } = at.submit({ sampling: { logitBias: NO_END }, echo: true, ...ask }, (event) => {
    types.push(event.type);
    if (event.type !== "prompt") return;
    prompt += event.text;
    scores.push(...(event.logprobs ?? []));
  });
  return { ...(await answer), prompt, scores, types };
}

const logprobsOf = (scored: readonly TokenLogprob[]) => scored.map(({ logprob }) => logprob);

function expectClose(scored: readonly TokenLogprob[], wanted: readonly TokenLogprob[]): void {
  expect(scored.map(({ token }) => token)).toEqual(wanted.map(({ token }) => token));
  scored.forEach(({ logprob }, i) => {
    // Kernels round differently by the number of rows that they compute together.
    expect(logprob).toBeCloseTo(wanted[i]?.logprob ?? Number.NaN, 1);
  });
}

describe("echo: the prompt with its log-probabilities", () => {
  it("has the scores that its tokens had when they were sampled", async () => {
    const prompt = [..."QXZ QXZ"].map(byteToken);
    const tokens: number[] = [];
    const sampled = await session.ask({
      prompt,
      maxTokens: 150,
      topLogprobs: 2,
      sampling: { logitBias: [...NO_END, ...[..."abcd"].map((each) => bias(each, 30))] },
    });
    for (const { token } of sampled.logprobs[0] ?? []) tokens.push(byteToken(token));
    const again = { prompt: [...prompt, ...tokens], topLogprobs: 2, maxTokens: 1 };
    const first = await echo(again);
    expect(first.scores).toHaveLength(157);
    expect(first.scores[0]).toMatchObject({ token: "Q", logprob: Number.NaN, top: [] });
    expect(first.scores[1]?.top).toHaveLength(2);
    expectClose(first.scores.slice(prompt.length), sampled.logprobs[0] ?? []);
    expect(first.prompt).toBe(`QXZ QXZ${sampled.texts[0]}`);
    expect(first.types.slice(0, 2)).toEqual(["started", "prompt"]);
    expect(first.types.lastIndexOf("prompt")).toBeLessThan(first.types.indexOf("delta"));
    // What is in the cache by now has no logits: it is computed again.
    const second = await echo({ ...again, choices: 2 });
    expect(second.cachedTokens).toBe(0);
    expectClose(second.scores.slice(1), first.scores.slice(1));
    expect(second.texts).toHaveLength(2);
  });

  it("comes as it was sent, without the scores where none are asked for", async () => {
    const text = "one<|im_start|>two";
    expect(await echo({ prompt: text, maxTokens: 1 })).toMatchObject({ prompt: text, scores: [] });
    const scored = await echo({ prompt: text, maxTokens: 1, topLogprobs: 0 });
    expect(scored.prompt).toBe(text);
    const bytes = scored.scores.flatMap((each) => [...each.bytes]);
    expect(Buffer.from(bytes).toString()).toBe(text);
    const tokens = [...Buffer.from("é!")].map((byte) => 4 + byte);
    expect((await echo({ prompt: tokens, maxTokens: 1 })).prompt).toBe("é!");
    const cut = await echo({ prompt: tokens.slice(0, 1), maxTokens: 1, topLogprobs: 0 });
    expect([cut.prompt, cut.scores.length]).toEqual(["�", 1]);
  });

  it("with max_tokens 0 is all of the answer, and no token is counted", async () => {
    const answer = await echo({ prompt: "hello there", maxTokens: 0, topLogprobs: 1 });
    expect(answer.texts).toEqual([]);
    expect(answer.reasons).toEqual(["length"]);
    expect(answer.usage?.completionTokens).toBe(0);
    expect(answer.prompt).toBe("hello there");
    expect(answer.scores.length).toBe(answer.usage?.promptTokens);
  });

  it("is the same beside others, and when it had to give its cells up", async () => {
    const small = await TestSession.open({ kvTokens: 512, contextTokens: 512, maxSequences: 3 });
    try {
      const ask = { prompt: "the line of the tide ".repeat(12), maxTokens: 4, topLogprobs: 0 };
      const alone = await echo(ask, small);
      const others = ["x", "y"].map((letter) =>
        small.ask({ prompt: letter.repeat(150), maxTokens: 90, sampling: { logitBias: NO_END } }),
      );
      const beside = await Promise.all([echo(ask, small), echo(ask, small)]);
      await Promise.all(others);
      for (const each of beside) expectClose(each.scores.slice(1), alone.scores.slice(1));
      expect(
        logprobsOf(alone.scores)
          .slice(1)
          .every((each) => each <= 0),
      ).toBe(true);
    } finally {
      await small.close();
    }
  });
});

function bias(letter: string, value: number) {
  return { token: byteToken(letter), bias: value };
}

describe("suffix: the model fills in the middle", () => {
  it("is refused by its name where the vocabulary has no tokens for it", async () => {
    const input = { kind: "text", text: "a", suffix: "b" } as const;
    const { error } = await session.ask({ prompt: "", input } as unknown as Ask);
    expect(error).toMatchObject({ code: "unsupported_parameter", param: "suffix" });
  });

  it("stands between the model's own tokens, of texts and of tokens", async () => {
    const directory = await mkdtemp(join(tmpdir(), "heddle-fill-"));
    const path = join(directory, "fill.gguf");
    const controls = {
      "<unused442>": "<|fim_prefix|>",
      "<unused443>": "<|fim_suffix|>",
      "<unused444>": "<|fim_middle|>",
    };
    await writeTinyModel(path, { controls });
    const filling = await TestSession.open({}, path);
    try {
      const before = [..."QXZ"].map(byteToken);
      const after = [..."ZXQ"].map(byteToken);
      const sampling = { logitBias: NO_END };
      const plain = { prompt: [442, ...before, 443, ...after, 444], sampling };
      const wanted = await filling.ask(plain);
      for (const input of [
        { kind: "text", text: "QXZ", suffix: "ZXQ" },
        { kind: "tokens", tokens: before, suffix: "ZXQ" },
      ]) {
        const { texts, usage, error } = await filling.ask({ ...plain, input } as unknown as Ask);
        expect(error).toBeUndefined();
        expect(usage?.promptTokens).toBe(9);
        expect(texts).toEqual(wanted.texts);
      }
    } finally {
      await filling.close();
      await rm(directory, { recursive: true });
    }
  });
});
