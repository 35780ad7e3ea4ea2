import { Heddle } from "@heddle/client/heddle";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { byteToken, NO_END, only, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node clients against a master and a worker as processes.

let cluster: ProcessCluster;
let openai: OpenAI;
beforeAll(async () => {
  cluster = await ProcessCluster.start();
  openai = cluster.openai;
});
afterAll(() => cluster.close());

type Params = Omit<OpenAI.CompletionCreateParamsNonStreaming, "model" | "stream">;
const base = { temperature: 0, seed: 7, max_tokens: 8, logit_bias: { ...NO_END } };
const create = (params: Params) => openai.completions.create({ model: TINY, ...base, ...params });

async function streamed(params: Params) {
  const stream = await openai.completions.create({
    model: TINY,
    ...base,
    ...params,
    stream: true,
    stream_options: { include_usage: true },
  });
  const chunks: OpenAI.Completion[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  const text = (index: number) =>
    chunks
      .flatMap(({ choices }) => choices)
      .filter((choice) => choice.index === index)
      .map((choice) => choice.text)
      .join("");
  return { chunks, text };
}

it("completions: a prompt is continued, streamed the same, with its usage", async () => {
  const whole = await create({ prompt: "abc" });
  expect(whole).toMatchObject({
    object: "text_completion",
    model: TINY,
    choices: [{ index: 0, logprobs: null, finish_reason: "length" }],
    usage: { prompt_tokens: 3, completion_tokens: 8, total_tokens: 11 },
  });
  const { chunks, text } = await streamed({ prompt: "abc" });
  expect(text(0)).toBe(whole.choices[0]?.text);
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 8 } });
  expect((await create({ prompt: "abc", max_tokens: null })).usage?.completion_tokens).toBe(16);
});

it("completions: the four forms of prompt, choices in the order of prompts", async () => {
  const tokens = [...Buffer.from("abc")].map((byte) => Number(byteToken(byte)));
  const [text, several] = [
    await create({ prompt: "abc" }),
    await create({ prompt: ["abc", "xyz"], n: 2 }),
  ];
  expect((await create({ prompt: tokens })).choices[0]?.text).toBe(text.choices[0]?.text);
  expect((await create({ prompt: [tokens] })).choices[0]?.text).toBe(text.choices[0]?.text);
  expect(several.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  expect(several.usage).toMatchObject({ prompt_tokens: 6, completion_tokens: 32 });
  const stream = await streamed({ prompt: ["abc", "xyz"], n: 2, echo: true });
  expect([0, 1, 2, 3].map((index) => stream.text(index).slice(0, 3))).toEqual([
    "abc",
    "abc",
    "xyz",
    "xyz",
  ]);
});

it("completions: logprobs with offsets, echo and stop", async () => {
  const scored = await create({ prompt: "abc", logprobs: 2, logit_bias: only("xy") });
  const { text = "", logprobs } = scored.choices[0] ?? {};
  expect(logprobs?.tokens?.join("")).toBe(text);
  expect(logprobs?.text_offset).toEqual([...text].map((_, i) => i));
  // The two likeliest, and the token itself, which its bias may have made likely.
  const shown = Object.keys(logprobs?.top_logprobs?.[0] ?? {});
  expect(shown).toContain(logprobs?.tokens?.[0]);
  expect(shown.length).toBeGreaterThanOrEqual(2);
  const echoed = await create({ prompt: "abc", echo: true, logit_bias: only("x") });
  expect(echoed.choices[0]?.text).toBe("abcxxxxxxxx");
  const stopped = await create({ prompt: "abc", stop: "xx", logit_bias: only("x") });
  expect(stopped.choices[0]).toMatchObject({ text: "", finish_reason: "stop" });
});

it("completions: echo gives the prompt its scores, and its text from tokens", async () => {
  const scored = { echo: true, logprobs: 2, logit_bias: only("x"), max_tokens: 3 };
  const { choices } = await create({ ...scored, prompt: ["abc", "é"], n: 2 });
  expect(choices.map(({ text }) => text)).toEqual(["abcxxx", "abcxxx", "éxxx", "éxxx"]);
  const {
    tokens,
    token_logprobs: own,
    text_offset: at,
    top_logprobs: tops,
  } = logprobsOf(choices[0]);
  expect(tokens.join("")).toBe("abcxxx");
  expect([own[0], tops[0]]).toEqual([null, null]);
  expect(own.slice(1).every((each) => (each ?? 1) <= 0)).toBe(true);
  expect(at).toEqual([0, 1, 2, 3, 4, 5]);
  expect(logprobsOf(choices[2]).text_offset).toEqual([0, 0, 1, 2, 3]);
  const given = [...Buffer.from("abc")].map((byte) => Number(byteToken(byte)));
  const plain = await create({ echo: true, prompt: [given], logit_bias: only("x") });
  expect(plain.choices[0]?.text).toBe("abcxxxxxxxx");
  const none = await create({ ...scored, prompt: given, max_tokens: 0 });
  expect(none.choices[0]).toMatchObject({ text: "abc", finish_reason: "length" });
  expect(logprobsOf(none.choices[0]).tokens).toEqual(["a", "b", "c"]);
  expect(none.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 0 });
  const { chunks, text } = await streamed({ ...scored, prompt: "abc" });
  expect(text(0)).toBe("abcxxx");
  const parts = chunks.flatMap((chunk) => chunk.choices.map((each) => each.logprobs?.tokens ?? []));
  expect(parts.flat()).toEqual(tokens);
});

it("completions: best_of sends the most likely per token, of each prompt", async () => {
  const drawn = { temperature: 1.5, seed: 11, max_tokens: 6, logprobs: 0 };
  const all = await create({ ...drawn, prompt: ["abc", "xyz"], n: 6 });
  const mean = (choice: OpenAI.CompletionChoice) => {
    const own = logprobsOf(choice).token_logprobs;
    return own.reduce((sum: number, each) => sum + (each ?? 0), 0) / own.length;
  };
  const best = [all.choices.slice(0, 6), all.choices.slice(6)].flatMap((each) =>
    each.toSorted((a, b) => mean(b) - mean(a)).slice(0, 2),
  );
  const sent = await create({ ...drawn, prompt: ["abc", "xyz"], n: 2, best_of: 6 });
  expect(sent.choices.map(({ text }) => text)).toEqual(best.map(({ text }) => text));
  expect(sent.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  expect(sent.usage?.completion_tokens).toBe(all.usage?.completion_tokens);
  const { logprobs: _, ...plain } = drawn;
  const [one] = (await create({ ...plain, prompt: "abc", best_of: 6 })).choices;
  expect(one).toMatchObject({ index: 0, logprobs: null, text: best[0]?.text });
});

function logprobsOf(choice: OpenAI.CompletionChoice | undefined) {
  return choice?.logprobs as {
    readonly tokens: readonly string[];
    readonly token_logprobs: readonly (number | null)[];
    readonly top_logprobs: readonly unknown[];
    readonly text_offset: readonly number[];
  };
}

it("completions: the client of this repository gets the same", async () => {
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const { choices } = await heddle.completions.create({ model: TINY, ...base, prompt: "abc" });
  expect(choices[0]?.text).toBe((await create({ prompt: "abc" })).choices[0]?.text);
});

it("completions: faults name their field", async () => {
  const refused = async (params: Record<string, unknown>, param: string) => {
    const asked = create({ prompt: "abc", ...params } as never);
    await expect(asked).rejects.toMatchObject({ status: 400, param });
  };
  await refused({ prompt: "" }, "prompt");
  await refused({ prompt: ["a", ""] }, "prompt[1]");
  await refused({ prompt: new Array(129).fill("a") }, "prompt");
  await refused({ prompt: ["a", "x ".repeat(9000)] }, "prompt[1]");
  await refused({ prompt: [1e6] }, "prompt");
  await refused({ suffix: "end" }, "suffix");
  await refused({ n: 3, best_of: 2 }, "best_of");
  await refused({ best_of: 21 }, "best_of");
  await refused({ best_of: 2, stream: true }, "best_of");
  await refused({ best_of: 20, prompt: new Array(7).fill("a") }, "best_of");
  await refused({ echo: true, suffix: "end" }, "echo");
  await refused({ max_tokens: -1 }, "max_tokens");
  await refused({ logprobs: 6 }, "logprobs");
  await refused({ n: 100, prompt: ["a", "b"] }, "n");
  await refused({ response_format: { type: "json_object" } }, "response_format");
});
