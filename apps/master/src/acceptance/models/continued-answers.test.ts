// holds: api-continuation

import Anthropic from "@anthropic-ai/sdk";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { childrenOf, NO_END, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// Calls of all kinds through the official clients, while their worker or its engine is killed.

const TOKENS = 250;
const CONTINUED = "heddle_dispatch_continued_total";

let cluster: ProcessCluster;
let openai: OpenAI;
let anthropic: Anthropic;
beforeAll(async () => {
  cluster = await ProcessCluster.start({ workers: 2 });
  // Answers of both workers are equal to the bit.
  const apiKey = await cluster.createKey({ deterministic: true });
  openai = cluster.client(apiKey);
  anthropic = new Anthropic({ baseURL: `${cluster.url}/api`, apiKey, maxRetries: 0 });
});
afterAll(() => cluster.close());

const user = [{ role: "user" as const, content: "continue" }];
const chat = {
  model: TINY,
  messages: user,
  max_tokens: TOKENS,
  temperature: 1,
  seed: 4,
  logit_bias: NO_END,
};
/** The newest types of a client have no temperature. */
const GREEDY: object = { temperature: 0 };
const list = { type: "array", items: { type: "integer" }, minItems: 60, maxItems: 60 };
const schema = { type: "object", properties: { list }, required: ["list"] };
const format = {
  type: "json_schema" as const,
  json_schema: { name: "numbers", schema, strict: false },
};
const tool = {
  type: "function" as const,
  function: { name: "note", parameters: schema },
};

/** A chat as the client's helper puts it together from its chunks. */
async function streamed(more: object) {
  const params = { ...chat, ...more, stream_options: { include_usage: true } };
  const { choices, usage } = await openai.chat.completions.stream(params).finalChatCompletion();
  const plain = choices.map((choice) => {
    const { content, tool_calls: calls = [] } = choice.message;
    return { ...choice, message: { content, calls: calls?.map((call) => call.function) } };
  });
  return { choices: plain, tokens: usage?.completion_tokens, prompt: usage?.prompt_tokens };
}

const CALLS: Record<string, () => Promise<unknown>> = {
  "a chat": () => streamed({}),
  "choices with scores": () => streamed({ n: 3, logprobs: true, top_logprobs: 2 }),
  "an object": () => streamed({ response_format: format, max_tokens: 600 }),
  "a call of a tool": () =>
    streamed({ tools: [tool], tool_choice: "required", max_tokens: 600, n: 1 }),
  "a whole answer": async () => {
    const { choices, usage } = await openai.chat.completions.create({ ...chat, n: 2 });
    return [choices.map(({ message }) => message.content), usage?.completion_tokens];
  },
  "texts of two prompts": async () => {
    const prompt = ["one", "two"];
    const asked = { ...GREEDY, model: TINY, prompt, max_tokens: TOKENS, logit_bias: NO_END };
    const texts = ["", ""];
    for await (const { choices } of await openai.completions.create({ ...asked, stream: true })) {
      for (const { index, text } of choices) texts[index] += text;
    }
    return texts;
  },
  "a response in the background": async () => {
    const asked = { ...GREEDY, model: TINY, input: "continue", max_output_tokens: TOKENS };
    const { id } = await openai.responses.create({ ...asked, background: true });
    const state = () => openai.responses.retrieve(id);
    await eventually(async () => !["queued", "in_progress"].includes((await state()).status ?? ""));
    const { status, output_text: text, usage } = await state();
    return [status, text, usage?.output_tokens];
  },
  "a message": async () => {
    const asked = { ...GREEDY, model: TINY, max_tokens: TOKENS, messages: user };
    const { content, usage } = await anthropic.messages.stream(asked).finalMessage();
    return [content, usage.output_tokens];
  },
};

/** All calls at once. */
const answers = async () =>
  Object.fromEntries(
    await Promise.all(Object.entries(CALLS).map(async ([name, call]) => [name, await call()])),
  );

/** All calls, during which the process with the most of them is killed. */
async function disturbed(victim: () => number): Promise<unknown> {
  const tokens = "vllm:generation_tokens_total";
  const before = await cluster.metric(tokens);
  const pending = held(answers());
  await cluster.until(async () => (await cluster.metric(tokens)) > before + 100, "tokens come");
  process.kill(victim(), "SIGKILL");
  return await pending;
}

it("continued answers: calls of all kinds survive a killed worker, then an engine", async () => {
  const expected = await answers();
  const worker = () => cluster.runningWorkers[0]?.pid ?? 0;
  expect(await disturbed(worker)).toEqual(expected);
  const continued = await cluster.metric(CONTINUED);
  expect(continued).toBeGreaterThan(0);
  await cluster.startMissing(2);
  expect(await disturbed(() => childrenOf(worker())[0] ?? 0)).toEqual(expected);
  expect(await cluster.metric(CONTINUED)).toBeGreaterThan(continued);
});

it("continued answers: a stream of the only worker waits for its restart", async () => {
  await cluster.startMissing(2);
  const expected = await streamed({});
  await cluster.stop(cluster.runningWorkers[1]!, "SIGKILL");
  await cluster.replicasReady(1);
  const stream = openai.chat.completions.stream({
    ...chat,
    stream_options: { include_usage: true },
  });
  const [only] = cluster.runningWorkers;
  await new Promise((resolve) => stream.once("content", resolve));
  await cluster.stop(only!, "SIGKILL");
  await cluster.startWorker();
  const { choices } = await stream.finalChatCompletion();
  expect(choices[0]?.message.content).toBe(expected.choices[0]?.message.content);
});
