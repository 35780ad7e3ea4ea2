// holds: api-openai-node

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { AIMessageChunk, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { embedMany, generateText, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI5 from "openai-5";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { NO_END, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// Real clients, unchanged, against a master and a worker as processes. The tiny model's weights are
// random, so that constrained decoding alone makes calls and JSON right.

const ANSWER = z.object({ city: z.enum(["Paris", "Rome"]), sunny: z.boolean() });
const WEATHER = z.object({ city: z.enum(["Paris", "Rome"]) });

let cluster: ProcessCluster;

beforeAll(async () => {
  cluster = await ProcessCluster.start();
});
afterAll(() => cluster.close());

const baseURL = () => `${cluster.url}/api/v1`;

describe("clients: the previous major of the OpenAI SDK", () => {
  const client = () => new OpenAI5({ baseURL: baseURL(), apiKey: cluster.adminKey, maxRetries: 0 });
  const hello = { model: TINY, messages: [{ role: "user" as const, content: "hello" }], seed: 7 };

  it("answers, streams, calls tools and parses structured output", async () => {
    const steered = { ...hello, max_tokens: 12, logit_bias: NO_END };
    const whole = await client().chat.completions.create(steered);
    expect(whole.choices[0]?.finish_reason).toBe("length");
    const streamed = await client().chat.completions.stream(steered).finalChatCompletion();
    expect(streamed.choices[0]?.message.content).toBe(whole.choices[0]?.message.content);
    const called = await client().chat.completions.create({
      ...hello,
      tool_choice: "required",
      tools: [
        { type: "function", function: { name: "weather", parameters: z.toJSONSchema(WEATHER) } },
      ],
    });
    const [call] = called.choices[0]?.message.tool_calls ?? [];
    expect(call?.type === "function" && WEATHER.parse(JSON.parse(call.function.arguments))).toEqual(
      {
        city: expect.any(String),
      },
    );
    const parsed = await client().chat.completions.parse({
      ...hello,
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", strict: true, schema: z.toJSONSchema(ANSWER) },
      },
    });
    ANSWER.parse(JSON.parse(parsed.choices[0]?.message.content ?? ""));
  });

  it("creates, streams and continues responses, and embeds", async () => {
    const asked = { model: TINY, input: "hello", max_output_tokens: 8 };
    const first = await client().responses.create(asked);
    const stream = client().responses.stream({ ...asked, previous_response_id: first.id });
    const events: OpenAI5.Responses.ResponseStreamEvent[] = [];
    for await (const event of stream) events.push(event);
    expect(events.at(-1)).toMatchObject({
      response: { previous_response_id: first.id, usage: { output_tokens: expect.any(Number) } },
    });
    const { data } = await client().embeddings.create({ model: TINY, input: ["a", "b"] });
    expect(data.map(({ index }) => index)).toEqual([0, 1]);
    await expect(
      client().embeddings.create({ model: TINY, input: "a", dimensions: 100_000 }),
    ).rejects.toMatchObject({ status: 400, param: "dimensions" });
  });
});

describe("clients: the AI SDK", () => {
  const provider = () =>
    createOpenAICompatible({
      name: "heddle",
      baseURL: baseURL(),
      apiKey: cluster.adminKey,
      includeUsage: true,
      supportsStructuredOutputs: true,
    });

  it("answers and streams, with usage", async () => {
    const asked = { model: provider()(TINY), prompt: "hello", maxOutputTokens: 8, seed: 7 };
    const whole = await generateText(asked);
    expect(whole.usage.outputTokens).toBeGreaterThan(0);
    const streamed = streamText(asked);
    let text = "";
    for await (const part of streamed.textStream) text += part;
    expect(text).toBe(whole.text);
    expect((await streamed.usage).outputTokens).toBe(whole.usage.outputTokens);
  });

  it("calls tools in steps, streamed too", async () => {
    const cities: string[] = [];
    const weather = tool({
      description: "The weather of a city",
      inputSchema: WEATHER,
      execute: ({ city }) => {
        cities.push(city);
        return { sunny: true };
      },
    });
    const asked = {
      model: provider()(TINY),
      prompt: "hello",
      tools: { weather },
      toolChoice: "required" as const,
      // Random weights make several calls: cut by its length, an answer has no second step.
      maxOutputTokens: 1_000,
      stopWhen: stepCountIs(2),
    };
    const { steps } = await generateText(asked);
    expect(steps).toHaveLength(2);
    expect(steps[0]?.toolResults[0]).toMatchObject({ toolName: "weather" });
    const streamed = streamText({ ...asked, stopWhen: stepCountIs(1) });
    await streamed.consumeStream();
    expect((await streamed.toolCalls)[0]).toMatchObject({ toolName: "weather" });
    expect(cities.length).toBeGreaterThanOrEqual(3);
  });

  it("has objects of a schema, and embeddings", async () => {
    const { output } = await generateText({
      model: provider()(TINY),
      prompt: "hello",
      output: Output.object({ schema: ANSWER }),
    });
    ANSWER.parse(output);
    const { embeddings } = await embedMany({
      model: provider().embeddingModel(TINY),
      values: ["a", "b", "c"],
    });
    expect(embeddings).toHaveLength(3);
  });
});

describe("clients: LangChain.js", () => {
  const chat = (more: object = {}) =>
    new ChatOpenAI({
      model: TINY,
      apiKey: cluster.adminKey,
      configuration: { baseURL: baseURL() },
      maxTokens: 200,
      maxRetries: 0,
      ...more,
    });

  it("answers and streams, with usage", async () => {
    const answer = await chat({ maxTokens: 8 }).invoke("hello");
    expect(answer.usage_metadata?.output_tokens).toBeGreaterThan(0);
    let sum: AIMessageChunk | undefined;
    for await (const chunk of await chat({ maxTokens: 8 }).stream("hello")) {
      sum = sum?.concat(chunk) ?? chunk;
    }
    expect(sum?.usage_metadata?.output_tokens).toBeGreaterThan(0);
  });

  it("calls tools, and continues from what they answered", async () => {
    const weather = langchainTool(({ city }: z.infer<typeof WEATHER>) => `sunny in ${city}`, {
      name: "weather",
      description: "The weather of a city",
      schema: WEATHER,
    });
    const bound = chat().bindTools([weather], { tool_choice: "weather" });
    const question = new HumanMessage("hello");
    const called = await bound.invoke([question]);
    const [call] = called.tool_calls ?? [];
    expect(WEATHER.parse(call?.args).city).toMatch(/Paris|Rome/);
    const result = new ToolMessage({ content: "sunny", tool_call_id: call?.id ?? "" });
    const next = await chat({ maxTokens: 8 }).invoke([question, called, result]);
    expect(next.usage_metadata?.input_tokens).toBeGreaterThan(0);
  });

  it("has structured output, responses and embeddings", async () => {
    const structured = chat().withStructuredOutput(ANSWER, { method: "jsonSchema" });
    ANSWER.parse(await structured.invoke("hello"));
    const response = await chat({ useResponsesApi: true, maxTokens: 8 }).invoke("hello");
    expect(response.response_metadata["id"]).toMatch(/^resp_/);
    const embeddings = new OpenAIEmbeddings({
      model: TINY,
      apiKey: cluster.adminKey,
      configuration: { baseURL: baseURL() },
    });
    expect(await embeddings.embedDocuments(["a", "b"])).toHaveLength(2);
  });
});
