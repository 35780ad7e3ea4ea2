import { once } from "node:events";
import { eventually } from "@heddle/base/testing/eventually";
import { Heddle } from "@heddle/client/heddle";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { NO_END, only, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node clients against a master and a worker as processes.

let cluster: ProcessCluster;
let openai: OpenAI;
beforeAll(async () => {
  cluster = await ProcessCluster.start();
  openai = cluster.openai;
});
afterAll(() => cluster.close());

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
