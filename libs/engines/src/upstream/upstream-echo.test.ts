// holds: engine-upstream-echo

import type { EngineEvent, TokenLogprob } from "@heddle/contracts/engine";
import type { UpstreamSpec } from "@heddle/contracts/models/upstream-spec";
import { afterEach, describe, expect, it } from "vitest";
import type { Ask } from "../testing/engine-session.ts";
import { scriptedUpstream, stream } from "../testing/scripted-upstream.ts";

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

type Score = readonly [token: string, logprob: number | null, offset: number];

/** A chunk of a completion. */
function chunk(
  text: string,
  scores: readonly Score[],
  more: { index?: number; finish_reason?: string; usage?: object } = {},
) {
  const { usage, ...members } = more;
  const logprobs = {
    tokens: scores.map(([token]) => token),
    token_logprobs: scores.map(([, logprob]) => logprob),
    top_logprobs: scores.map(([token, logprob]) => logprob && { [token]: logprob }),
    text_offset: scores.map(([, , offset]) => offset),
  };
  const choice = { index: 0, text, logprobs, finish_reason: null, ...members };
  return { choices: [choice], ...(usage && { usage }) };
}

const counts = (prompt_tokens: number, completion_tokens: number) => ({
  prompt_tokens,
  completion_tokens,
});

/** What an upstream of the dialect makes of these chunks, and what it was asked. */
async function echoed(
  dialect: UpstreamSpec["dialect"],
  ask: Ask,
  chunks: readonly unknown[],
  usage = counts(3, 2),
) {
  const { server, session } = await scriptedUpstream({ dialect }, (close) => closers.push(close));
  server.script.push(
    (reply) => void stream(reply, ...chunks, { choices: [], usage }, "[DONE]").end(),
  );
  let prompt = "";
  const scores: TokenLogprob[] = [];
  const order: EngineEvent["type"][] = [];
  const { answer } = session.submit({ echo: true, ...ask }, (event) => {
    order.push(event.type);
    if (event.type !== "prompt") return;
    prompt += event.text;
    scores.push(...(event.logprobs ?? []));
  });
  const tokensOf = (all: readonly TokenLogprob[] = []) => all.map(({ token }) => token);
  const { texts, logprobs, deltaTokens, error } = await answer;
  return {
    prompt,
    scores,
    tokens: tokensOf(scores),
    texts,
    answered: logprobs.map(tokensOf),
    deltaTokens,
    order,
    error,
    body: server.bodies.at(-1),
  };
}

describe("upstream: echo with log-probabilities", () => {
  it("vLLM's is in the first chunk, with a begin token and the first of the answer", async () => {
    const first: Score[] = [
      ["<s>", null, 0],
      ["ab", -1, 3],
      ["c", -2, 5],
      ["X", -3, 6],
    ];
    const found = await echoed("vllm", { prompt: "abc", topLogprobs: 1, choices: 2 }, [
      chunk("abcX", first, { index: 1, usage: counts(3, 1) }),
      chunk("abcX", first, { usage: counts(3, 1) }),
      chunk("Y", [["Y", -4, 7]], { finish_reason: "length", usage: counts(3, 2) }),
      chunk("Z", [["Z", -4, 7]], { index: 1, finish_reason: "length", usage: counts(3, 2) }),
    ]);
    expect(found.error).toBeUndefined();
    expect(found.body).toMatchObject({ echo: true, logprobs: 1, prompt: "abc" });
    expect([found.prompt, found.tokens]).toEqual(["abc", ["ab", "c"]]);
    expect(found.scores[0]).toMatchObject({ logprob: -1, top: [{ token: "ab", logprob: -1 }] });
    expect(found.texts).toEqual(["XY", "XZ"]);
    expect(found.answered).toEqual([
      ["X", "Y"],
      ["X", "Z"],
    ]);
    expect(found.deltaTokens).toBe(4);
    expect(found.order.slice(0, 3)).toEqual(["started", "prompt", "delta"]);
    expect(found.order.filter((type) => type === "prompt")).toHaveLength(1);
  });

  it("SGLang's has no offsets, and scores no prompt without alternatives", async () => {
    const chunks = [
      chunk(
        "abX",
        [
          ["a", null, -1],
          ["b", -1, -1],
          ["X", -2, -1],
        ],
        { usage: counts(2, 1) },
      ),
      chunk("", [], { finish_reason: "stop", usage: counts(2, 1) }),
    ];
    const scored = await echoed("sglang", { prompt: "ab", topLogprobs: 0 }, chunks);
    expect(scored.body).toMatchObject({ echo: true, logprobs: 1 });
    expect([scored.prompt, scored.tokens, scored.texts]).toEqual(["ab", ["a", "b"], ["X"]]);
    // Of tokens the text is known by the scores, which are not passed on unasked.
    const plain = await echoed("sglang", { prompt: [7, 8] }, chunks);
    expect([plain.prompt, plain.tokens, plain.texts]).toEqual(["ab", [], ["X"]]);
    expect([plain.answered, plain.deltaTokens]).toEqual([[[]], 1]);
    expect(plain.scores).toEqual([]);
  });

  it("the contract's offsets divide prompt and answer, in as many chunks as there are", async () => {
    const found = await echoed("openai", { prompt: "é bc", topLogprobs: 0, choices: 2 }, [
      chunk("é bc", [["é", null, 0]]),
      chunk("é bc", [["é", null, 0]], { index: 1 }),
      chunk("", [[" b", -1, 1]], { index: 1 }),
      chunk("", [["c", -2, 3]], { index: 1 }),
      chunk("X", [["X", -3, 4]], { index: 1, finish_reason: "length" }),
      chunk("", [[" b", -1, 1]]),
      chunk("Y", [
        ["c", -2, 3],
        ["Y", -4, 4],
      ]),
      chunk("", [], { finish_reason: "stop" }),
    ]);
    expect(found.error).toBeUndefined();
    expect([found.prompt, found.tokens]).toEqual(["é bc", ["é", " b", "c"]]);
    expect(found.texts).toEqual(["Y", "X"]);
    expect(found.order.lastIndexOf("prompt")).toBeLessThan(found.order.indexOf("delta"));
  });

  it("without an answer is the prompt alone", async () => {
    const all: Score[] = [
      ["a", null, 0],
      ["b", -1, 1],
    ];
    const found = await echoed("heddle", { prompt: [5, 6], topLogprobs: 1, maxTokens: 0 }, [
      chunk("ab", all),
      chunk("", [], { finish_reason: "length" }),
    ]);
    expect([found.prompt, found.tokens, found.texts]).toEqual(["ab", ["a", "b"], []]);
    expect(found.body).toMatchObject({ max_tokens: 0 });
  });

  it.each<[string, Ask["prompt"], readonly unknown[]]>([
    ["an ignored echo of a text", "ab", [chunk("X", [["X", -1, 0]], { finish_reason: "stop" })]],
    ["an ignored echo of tokens", [5], [chunk("X", [["X", -1, 0]], { finish_reason: "stop" })]],
    ["a cut prompt", "ab", [chunk("a", [["a", null, 0]], { finish_reason: "stop" })]],
    ["a prompt without scores", "ab", [chunk("ab", [], { finish_reason: "stop" })]],
  ])("%s is no answer", async (_, prompt, chunks) => {
    const { error } = await echoed("openai", { prompt, topLogprobs: 0 }, chunks);
    expect(error?.code).toBe("answer_failed");
  });

  it("is refused by its name where the server has none", async () => {
    for (const dialect of ["llama-server", "tgi"] as const) {
      const { error } = await echoed(dialect, { prompt: "ab", topLogprobs: 0 }, []);
      expect(error).toMatchObject({ code: "unsupported_parameter", param: "echo" });
    }
  });
});

describe("upstream: a budget of reasoning", () => {
  const prompt = [{ role: "user", content: "Hi" }] as const;

  it.each([
    ["vllm", "thinking_token_budget"],
    ["heddle", "thinking_token_budget"],
    ["llama-server", "thinking_budget_tokens"],
  ] as const)("%s gets it as %s", async (dialect, name) => {
    const { server, session } = await scriptedUpstream({ dialect }, (close) => closers.push(close));
    expect((await session.ask({ prompt, reasoningTokens: 64 })).error).toBeUndefined();
    expect(server.bodies.at(-1)).toMatchObject({ [name]: 64 });
  });

  it("is refused by its name where the server may ignore it", async () => {
    for (const dialect of ["openai", "sglang", "tgi"] as const) {
      const { session } = await scriptedUpstream({ dialect }, (close) => closers.push(close));
      const { error } = await session.ask({ prompt, reasoningTokens: 64 });
      expect(error).toMatchObject({
        code: "unsupported_parameter",
        param: "thinking_token_budget",
      });
    }
  });
});
