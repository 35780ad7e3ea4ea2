import { Heddle } from "@heddle/client/heddle";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { byteToken, NO_END, only, ProcessCluster, TINY } from "../../test/process-cluster.ts";

// The unmodified official Node client against a master and a worker as processes.

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
  expect(Object.keys(logprobs?.top_logprobs?.[0] ?? {})).toHaveLength(2);
  const echoed = await create({ prompt: "abc", echo: true, logit_bias: only("x") });
  expect(echoed.choices[0]?.text).toBe("abcxxxxxxxx");
  const stopped = await create({ prompt: "abc", stop: "xx", logit_bias: only("x") });
  expect(stopped.choices[0]).toMatchObject({ text: "", finish_reason: "stop" });
});

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
  await refused({ best_of: 2 }, "best_of");
  await refused({ echo: true, logprobs: 1 }, "echo");
  await refused({ logprobs: 6 }, "logprobs");
  await refused({ n: 100, prompt: ["a", "b"] }, "n");
  await refused({ response_format: { type: "json_object" } }, "response_format");
});
