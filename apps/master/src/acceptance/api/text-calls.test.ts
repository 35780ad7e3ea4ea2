import { once } from "node:events";
import Anthropic from "@anthropic-ai/sdk";
import { eventually } from "@heddle/base/testing/eventually";
import { Heddle } from "@heddle/client/heddle";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { byteToken, NO_END, only, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node clients against a master and a worker as processes.

let cluster: ProcessCluster;
let openai: OpenAI;
let anthropic: Anthropic;
beforeAll(async () => {
  cluster = await ProcessCluster.start();
  openai = cluster.openai;
  anthropic = new Anthropic({
    baseURL: `${cluster.url}/api`,
    apiKey: cluster.adminKey,
    maxRetries: 0,
  });
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

type MessageParams = Partial<Anthropic.MessageCreateParamsNonStreaming>;
/** The client's newest types have no temperature; its earlier ones do. */
const greedy: object = { temperature: 0 };
const asked: Anthropic.MessageCreateParamsNonStreaming = {
  ...greedy,
  model: TINY,
  max_tokens: 12,
  messages: [{ role: "user", content: "abc" }],
};
const message = (params: MessageParams = {}) =>
  anthropic.messages.create({ ...asked, ...params }) as Promise<Anthropic.Message>;
const weather: Anthropic.Tool = {
  name: "weather",
  input_schema: {
    type: "object",
    properties: { city: { enum: ["Bern", "Rome"] }, days: { type: "integer", maximum: 9 } },
    required: ["city", "days"],
    additionalProperties: false,
  },
};
const calling = { tools: [weather], tool_choice: { type: "any" as const }, max_tokens: 400 };

// holds: api-messages
it("messages: an answer at once and streamed, with its usage", async () => {
  const whole = await message();
  expect(whole).toMatchObject({ type: "message", role: "assistant", model: TINY });
  expect(whole.usage.output_tokens).toBeGreaterThan(0);
  const events: string[] = [];
  const stream = anthropic.messages.stream(asked);
  stream.on("streamEvent", ({ type }) => events.push(type));
  const streamed = await stream.finalMessage();
  expect(streamed.content).toEqual(whole.content);
  expect([streamed.stop_reason, streamed.usage.output_tokens]).toEqual([
    whole.stop_reason,
    whole.usage.output_tokens,
  ]);
  expect([events[0], events.at(-1)]).toEqual(["message_start", "message_stop"]);
});

// holds: api-messages
it("messages: a stop sequence ends the text and is named", async () => {
  const [block] = (await message({ max_tokens: 24 })).content;
  const text = block?.type === "text" ? block.text : "";
  const stop = text.slice(2, 4);
  const stopped = await message({ max_tokens: 24, stop_sequences: ["never there", stop] });
  expect(stopped).toMatchObject({ stop_reason: "stop_sequence", stop_sequence: stop });
  expect(stopped.content).toMatchObject([{ text: text.slice(0, text.indexOf(stop)) }]);
});

// holds: api-messages
it("messages: a tool is called with valid input, and its result goes back", async () => {
  const whole = await message(calling);
  const call = whole.content.find((block) => block.type === "tool_use");
  expect(whole.stop_reason).toBe("tool_use");
  expect(call?.input).toEqual({
    city: expect.stringMatching(/Bern|Rome/),
    days: expect.any(Number),
  });
  const streamed = await anthropic.messages.stream({ ...asked, ...calling }).finalMessage();
  expect(streamed.content).toEqual(
    whole.content.map((block) => ({ ...block, id: expect.stringMatching(/^toolu_/) })),
  );
  const result = {
    type: "tool_result" as const,
    tool_use_id: call?.id ?? "",
    content: "12 degrees",
  };
  const next = await message({
    ...calling,
    tool_choice: { type: "none" },
    max_tokens: 4,
    system: "Be brief.",
    messages: [
      ...asked.messages,
      { role: "assistant", content: whole.content },
      {
        role: "user",
        content: [
          { ...result, is_error: true },
          { type: "text", text: "continue" },
        ],
      },
    ],
  });
  expect(next.usage.input_tokens).toBeGreaterThan(100);
  const format = { type: "json_schema" as const, schema: weather.input_schema };
  const [json] = (await message({ output_config: { format }, max_tokens: 400 })).content;
  expect(Object.keys(JSON.parse(json?.type === "text" ? json.text : ""))).toEqual(["city", "days"]);
});

// holds: api-messages
it("messages: faults are Anthropic's errors and name their field", async () => {
  const refused = async (params: Record<string, unknown>, param: string) => {
    const error: InstanceType<typeof Anthropic.APIError> = await message(params as never).then(
      () => expect.unreachable(),
      (thrown) => thrown,
    );
    expect([error.status, error.type, error.requestID]).toEqual([
      400,
      "invalid_request_error",
      expect.any(String),
    ]);
    expect(error.error).toMatchObject({ type: "error", error: { param } });
  };
  const image = { type: "image", source: { type: "url", url: "https://example.com/a.png" } };
  const result = { type: "tool_result", tool_use_id: "toolu_x", content: "1" };
  await refused({ max_tokens: undefined }, "max_tokens");
  await refused({ max_tokens: 20_000 }, "max_tokens");
  await refused({ messages: [{ role: "user", content: [image] }] }, "messages[0].content[0].type");
  await refused(
    { messages: [{ role: "user", content: [result] }] },
    "messages[0].content[0].tool_use_id",
  );
  await refused({ messages: [{ role: "assistant", content: "I" }] }, "messages[0].role");
  await refused({ thinking: { type: "enabled", budget_tokens: 1024 } }, "thinking.budget_tokens");
  await refused({ tools: [weather, weather] }, "tools[1].name");
  const not = { ...weather, input_schema: { type: "object", contains: {} } };
  await refused({ tools: [{ ...weather, name: "a" }, not] }, "tools[1].input_schema");
  await refused({ messages: [{ role: "user", content: "x ".repeat(9000) }] }, "messages");
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const types: string[] = [];
  for await (const { type } of heddle.messages.stream(asked as never)) types.push(type);
  expect(types.at(-1)).toBe("message_stop");
  const foreign = new Anthropic({ baseURL: `${cluster.url}/api`, apiKey: "no", maxRetries: 0 });
  await expect(foreign.messages.create(asked)).rejects.toBeInstanceOf(
    Anthropic.AuthenticationError,
  );
});

const FORECAST: OpenAI.Responses.FunctionTool = {
  type: "function",
  name: "weather",
  description: "The weather of a city",
  strict: true,
  parameters: {
    type: "object",
    properties: { city: { type: "string", maxLength: 12 }, unit: { enum: ["C", "F"] } },
    required: ["city", "unit"],
    additionalProperties: false,
  },
};
const QUESTION = {
  model: TINY,
  input: "weather in Oslo?",
  seed: 7,
  max_output_tokens: 400,
} as const;

// holds: api-responses
it("responses: a required function is called, streamed and not, whatever the model", async () => {
  const body = {
    ...QUESTION,
    tools: [FORECAST],
    tool_choice: "required" as const,
    parallel_tool_calls: false,
  };
  const whole = await openai.responses.create(body);
  expect(whole).toMatchObject({ status: "completed", output: [{ type: "function_call" }] });
  const final = await openai.responses.stream(body).finalResponse();
  for (const { output } of [whole, final]) {
    expect(output).toHaveLength(1);
    const [call] = output;
    if (call?.type !== "function_call") throw new Error("no call");
    expect(call).toMatchObject({ name: "weather", status: "completed" });
    const { city, unit } = JSON.parse(call.arguments);
    expect([typeof city, ["C", "F"].includes(unit)]).toEqual(["string", true]);
  }
  const [call] = whole.output as [OpenAI.Responses.ResponseFunctionToolCall];
  const result = { type: "function_call_output" as const, call_id: call.call_id, output: "rain" };
  const input = [{ role: "user" as const, content: QUESTION.input }, call, result];
  const next = await openai.responses.create({ ...body, input, tool_choice: "none" });
  expect(next.output).toMatchObject([{ type: "message" }]);
  expect(next.usage?.input_tokens).toBeGreaterThan(QUESTION.input.length);
});

it("responses: JSON by a schema is parsed by the official client", async () => {
  const { parameters: schema } = FORECAST;
  const format = { type: "json_schema" as const, name: "weather", schema: schema ?? {} };
  const { output_parsed } = await openai.responses.parse({ ...QUESTION, text: { format } });
  expect(Object.keys(output_parsed ?? {})).toEqual(["city", "unit"]);
  const wrong = { ...format, schema: { type: "object", contains: {} } };
  await expect(
    openai.responses.create({ ...QUESTION, text: { format: wrong } }),
  ).rejects.toMatchObject({ status: 400, param: "text.format.schema" });
  const tools = [{ ...FORECAST, parameters: { type: "object", contains: {} } }];
  await expect(openai.responses.create({ ...QUESTION, tools })).rejects.toMatchObject({
    status: 400,
    param: "tools[0].parameters",
  });
  const long = openai.responses.create({ ...QUESTION, input: "x ".repeat(9000) });
  await expect(long).rejects.toMatchObject({ code: "context_length_exceeded", param: "input" });
});

it("responses: with truncation the oldest turns go, and the rest fits", async () => {
  const say = (text: string) => ({ role: "user" as const, content: text.repeat(500) });
  const input = ["a", "b", "c", "d", "e", "f", "g", "h"].flatMap((text) => [
    say(text),
    { role: "assistant" as const, content: text },
  ]);
  const last = { role: "user" as const, content: "and now?" };
  const long = { model: TINY, input: [...input, ...input, last], max_output_tokens: 100 };
  await expect(openai.responses.create(long)).rejects.toMatchObject({
    code: "context_length_exceeded",
  });
  const answer = await openai.responses.create({ ...long, truncation: "auto" });
  expect(answer).toMatchObject({ truncation: "auto", output: [{ type: "message" }] });
  expect(answer.usage?.input_tokens).toBeLessThanOrEqual(4_096 - 100);
  expect(answer.usage?.input_tokens).toBeGreaterThan(2_500);
  const next = await openai.responses.create({
    ...long,
    input: "and then?",
    previous_response_id: answer.id,
    truncation: "auto",
    instructions: "be brief",
  });
  expect(next.usage?.input_tokens).toBeLessThanOrEqual(4_096 - 100);
  const tooLong = { ...long, input: "xy ".repeat(5_000), truncation: "auto" as const };
  await expect(openai.responses.create(tooLong)).rejects.toMatchObject({
    code: "context_length_exceeded",
  });
});

it("responses: the client of this repository gets the same", async () => {
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const body = { ...QUESTION, max_output_tokens: 8, temperature: 0, logit_bias: only("x") };
  const { output } = await heddle.responses.create(body);
  expect(output).toMatchObject([{ status: "incomplete", content: [{ text: "xxxxxxxx" }] }]);
  const types: string[] = [];
  for await (const { type } of heddle.responses.stream(body)) types.push(type);
  expect([types[0], types.at(-1)]).toEqual(["response.created", "response.incomplete"]);
});

// holds: api-tokens
it("tokens: texts and chats are read as their calls read them, and spelled again", async () => {
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const { tokens } = heddle;
  const read = await tokens.tokenize({ model: TINY, prompt: "h\u00e9 <|im_end|>" });
  const tail = await tokens.tokenize({ model: TINY, prompt: "abc", return_token_strs: true });
  expect(tail).toMatchObject({ count: 3, token_strs: ["a", "b", "c"] });
  expect(tail.tokens).toEqual([..."abc"].map((c) => Number(byteToken(c.charCodeAt(0)))));
  const { prompt } = await tokens.detokenize({ model: TINY, tokens: [...read.tokens] });
  expect(prompt).toBe("h\u00e9 <|im_end|>");
  const messages = [{ role: "user" as const, content: "what is <|im_end|> here?" }];
  const shown = await tokens.applyTemplate({ model: TINY, messages });
  expect(shown.prompt).toContain("what is <|im_end|> here?");
  expect(shown.prompt).toMatch(/assistant\s*$/);
  const chat = await tokens.tokenize({ model: TINY, messages });
  const { usage } = await openai.chat.completions.create({ model: TINY, messages, max_tokens: 1 });
  expect(chat.count).toBe(usage?.prompt_tokens);
  const counted = await anthropic.messages.countTokens({ model: TINY, messages });
  expect(counted.input_tokens).toBe(chat.count);
  const long = await tokens.tokenize({ model: TINY, prompt: "a loom ".repeat(60_000) });
  expect(long.tokens).toHaveLength(long.count);
  expect(long.count).toBeGreaterThan(long.max_model_len);
});

// holds: api-tokens
it("tokens: faults name their field, and nothing is charged", async () => {
  const refused = async (path: string, body: object, param: string) => {
    const reply = await cluster.request("POST", `/api/v1/${path}`, { model: TINY, ...body });
    expect([reply.status, ((await reply.json()) as { error: object }).error]).toEqual([
      400,
      expect.objectContaining({ param }),
    ]);
  };
  await refused("tokenize", {}, "prompt");
  await refused("tokenize", { prompt: "a", messages: asked.messages }, "prompt");
  await refused("tokenize", { prompt: "a".repeat(524_289) }, "prompt");
  await refused("tokenize", { messages: [] }, "messages");
  await refused(
    "tokenize",
    { messages: asked.messages, add_special_tokens: true },
    "add_special_tokens",
  );
  await refused("detokenize", { tokens: [1e6] }, "tokens");
  await refused("detokenize", { tokens: ["a"] }, "tokens[0]");
  await refused("apply-template", { messages: [{ role: "x", content: "" }] }, "messages[0].role");
  const key = await cluster.createKey({ limits: { tokens_per_minute: 5 } });
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: key });
  const { count } = await heddle.tokens.tokenize({ model: TINY, prompt: "a much longer text" });
  expect(count).toBeGreaterThan(5);
});

// holds: api-rerank
it("rerank: documents in the order of their cosine, whose embeddings are the model's", async () => {
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const documents = ["a loom weaves", { text: "the rain" }, "rain in Spain", "zzzz"];
  const body = { model: TINY, query: "the rain", documents };
  const { results, method, usage } = await heddle.rerank.create(body);
  expect([method, results[0]?.index, usage.total_tokens > 0]).toEqual(["cosine", 1, true]);
  expect(results[0]?.relevance_score).toBeCloseTo(1, 2);
  const scores = results.map(({ relevance_score }) => relevance_score);
  expect(scores).toEqual(scores.toSorted((one, other) => other - one));
  const best = await heddle.rerank.create({ ...body, top_n: 1, return_documents: true });
  expect(best.results).toMatchObject([{ index: 1, document: { text: "the rain" } }]);
  const refused = async (more: object, param: string) => {
    const reply = await cluster.request("POST", "/api/v1/rerank", { ...body, ...more });
    expect([reply.status, await reply.json()]).toMatchObject([400, { error: { param } }]);
  };
  await refused({ query: "" }, "query");
  await refused({ documents: [] }, "documents");
  await refused({ documents: new Array(1001).fill("a") }, "documents");
  await refused({ documents: ["a", "x ".repeat(9000)] }, "documents[1]");
  await refused({ query: "x ".repeat(9000) }, "query");
  await refused({ top_n: 0 }, "top_n");
});

// holds: api-moderations
it("moderations: texts are scored by category, and near misses are not flagged", async () => {
  const create = (input: string | string[]) => openai.moderations.create({ input });
  const { results, model } = await create([
    "I will come over and break your bones, you idiot.",
    "I have decided to kill myself this evening.",
    "How do I kill a stuck process in Linux?",
    "Please translate this letter into German.",
  ]);
  expect(model).toBe("moderation-local");
  expect(results.map(({ flagged }) => flagged)).toEqual([true, true, false, false]);
  const [threat, intent] = results;
  expect(threat?.categories).toMatchObject({ "harassment/threatening": true, sexual: false });
  expect(intent?.categories).toMatchObject({ "self-harm/intent": true, hate: false });
  for (const { category_scores, category_applied_input_types } of results) {
    expect(Object.keys(category_scores)).toHaveLength(13);
    expect(Object.keys(category_applied_input_types)).toHaveLength(13);
  }
  const hidden = await create(`${"The weather is nice today. ".repeat(40)}I want to kill myself.`);
  expect(hidden.results[0]?.category_scores["self-harm"]).toBeGreaterThan(0.5);
  const part = { type: "text" as const, text: "hello" };
  const parts = await openai.moderations.create({ input: [part, part] });
  expect(parts.results).toHaveLength(1);
  const refused = async (body: object, status: number, param: string) => {
    const reply = await cluster.request("POST", "/api/v1/moderations", body);
    expect([reply.status, await reply.json()]).toMatchObject([status, { error: { param } }]);
  };
  const image = { type: "image_url", image_url: { url: "https://a.example/b" } };
  await refused({ input: [part, image] }, 400, "input[1].type");
  await refused({ input: "a".repeat(40_000) }, 400, "input");
  await refused({ input: [] }, 400, "input");
  await refused({ input: "a", model: "gpt" }, 404, "model");
});

// holds: api-responses-stored, api-responses-background
it("responses: a killed master keeps what is stored, and what it ran has failed", async () => {
  const stored = await openai.responses.create({ ...QUESTION, max_output_tokens: 8 });
  const endless = { ...QUESTION, max_output_tokens: 4_000, logit_bias: NO_END, background: true };
  const { id } = await openai.responses.create(endless as typeof QUESTION);
  await eventually(async () => (await openai.responses.retrieve(id)).status === "in_progress");
  const gone = once(cluster.master, "exit");
  cluster.master.kill("SIGKILL");
  await gone;
  await cluster.startMaster();
  await cluster.replicasReady(1);
  const { responses } = cluster.openai;
  expect(await responses.retrieve(stored.id)).toEqual(stored);
  const lost = await responses.retrieve(id);
  expect(lost).toMatchObject({ status: "failed", error: { code: "server_error" } });
  expect(lost.error?.message).toContain("was lost");
  const next = { ...QUESTION, max_output_tokens: 8, previous_response_id: stored.id };
  const counted = await responses.inputTokens.count(next);
  expect((await responses.create(next)).usage?.input_tokens).toBe(counted.input_tokens);
});
