// holds: api-responses

import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventsOf, send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
let openai: OpenAI;
const MODEL = "FamilyA-1-2B";
const hello = { model: MODEL, input: "one two three" };

beforeAll(async () => {
  server = await startTestMaster();
  openai = new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey: server.adminKey, maxRetries: 0 });
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

const post = (body: unknown, signal?: AbortSignal) =>
  send(server, "POST", "/api/v1/responses", body, { signal });

/** The events of a streamed response, whose numbers and names are checked. */
async function streamed(body: object): Promise<OpenAI.Responses.ResponseStreamEvent[]> {
  const reply = await post({ ...body, stream: true });
  expect(reply.headers.get("content-type")).toContain("text/event-stream");
  const events = eventsOf(await reply.text());
  return events.map(({ type, data }, index) => {
    const event = JSON.parse(data) as OpenAI.Responses.ResponseStreamEvent;
    expect(event).toMatchObject({ type, sequence_number: index });
    return event;
  });
}

describe("responses: an answer at once", () => {
  it("has the contract's shape", async () => {
    const { data, response } = await openai.responses.create(hello).withResponse();
    expect(data).toMatchObject({
      object: "response",
      status: "completed",
      error: null,
      incomplete_details: null,
      model: MODEL,
      output_text: "one two three word3 word4",
      usage: {
        input_tokens: 3,
        input_tokens_details: { cached_tokens: 1, cache_write_tokens: 0 },
        output_tokens: 5,
        total_tokens: 8,
      },
    });
    expect(data.id).toMatch(/^resp_/);
    expect(data.output).toMatchObject([
      { type: "message", role: "assistant", status: "completed", content: [{ annotations: [] }] },
    ]);
    expect(response.headers.get("x-ratelimit-limit-tokens")).toBe("10000000000");
    expect(response.headers.get("x-heddle-node")).toBe("node-test");
  });

  it("passes items to the model as messages, calls merged into one", async () => {
    const call = (id: string) => ({
      type: "function_call" as const,
      call_id: id,
      name: "f",
      arguments: "{}",
    });
    const output = (id: string) => ({
      type: "function_call_output" as const,
      call_id: id,
      output: `of ${id}`,
    });
    await openai.responses.create({
      model: MODEL,
      instructions: "be brief",
      input: [
        { role: "developer", content: "rule" },
        { role: "user", content: [{ type: "input_text", text: "question" }] },
        { type: "reasoning", id: "rs_1", summary: [] },
        { role: "assistant", content: "let me see" },
        call("a"),
        call("b"),
        output("b"),
        output("a"),
      ],
    });
    const { request } = server.dispatch.calls.at(-1) ?? {};
    if (request?.kind === "embed" || request?.input.kind !== "chat") throw new Error("no chat");
    expect(request.input.messages.map(({ role, content }) => [role, content])).toEqual([
      ["system", "be brief"],
      ["developer", "rule"],
      ["user", "question"],
      ["assistant", "let me see"],
      ["tool", "of b"],
      ["tool", "of a"],
    ]);
    expect(request.input.messages[3]?.toolCalls?.map(({ id }) => id)).toEqual(["a", "b"]);
  });

  it("is incomplete where its length ends it, and has its reasoning as an item", async () => {
    const body = { ...hello, input: "<think> hm hm </think> yes no", max_output_tokens: 5 };
    const response = await openai.responses.create(body);
    expect(response).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output: [
        { type: "reasoning", content: [{ type: "reasoning_text", text: "hm hm " }] },
        { type: "message", status: "incomplete", content: [{ text: "yes" }] },
      ],
      usage: { output_tokens_details: { reasoning_tokens: 4 } },
    });
  });

  it("is an error reply where the engine fails or the worker is lost", async () => {
    server.dispatch.script.failAfter = { tokens: 2, error: new AppError("engine_failed", "broke") };
    await expect(openai.responses.create(hello)).rejects.toMatchObject({ code: "engine_failed" });
    server.dispatch.script = { vanishAfter: 2 };
    await expect(openai.responses.create(hello)).rejects.toMatchObject({ code: "worker_lost" });
  });
});

describe("responses: a streamed answer", () => {
  it("has every event of its items in order, without gaps", async () => {
    const events = await streamed({ ...hello, input: "<think> hm </think> yes no" });
    const types = events.map(({ type }) => type);
    expect([...new Set(types)]).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.reasoning_text.delta",
      "response.reasoning_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.output_text.delta",
      "response.output_text.done",
      "response.completed",
    ]);
    const text = events.map((event) =>
      event.type === "response.output_text.delta" ? event.delta : "",
    );
    const last = events.at(-1);
    expect(text.join("")).toBe("yes no");
    expect(last).toMatchObject({ response: { status: "completed", usage: { output_tokens: 5 } } });
  });

  it("is put together by the official client, with the same scores", async () => {
    const scored = {
      ...hello,
      include: ["message.output_text.logprobs" as const],
      top_logprobs: 2,
    };
    const whole = await openai.responses.create(scored);
    const stream = openai.responses.stream(scored);
    const final = await stream.finalResponse();
    const textOf = ({ output }: OpenAI.Responses.Response) =>
      output.flatMap((item) => (item.type === "message" ? item.content : []));
    expect(final.output_text).toBe("one two three word3 word4");
    expect(textOf(whole)).toMatchObject([{ logprobs: { length: 5 } }]);
    expect(textOf(final)).toMatchObject(textOf(whole));
  });

  it("ends with response.failed where it fails midway, and is padded if asked", async () => {
    server.dispatch.script.failAfter = { tokens: 3, error: new AppError("worker_lost", "died") };
    const events = await streamed({ ...hello, stream_options: { include_obfuscation: true } });
    expect(events.at(-1)).toMatchObject({
      type: "response.failed",
      response: { status: "failed", error: { code: "server_error", message: "died" } },
    });
    expect(events.some(({ type }) => type === "response.completed")).toBe(false);
    const deltas = events.filter(({ type }) => type === "response.output_text.delta");
    expect(deltas.every((event) => "obfuscation" in event)).toBe(true);
  });

  it("is an error reply before its begin, and an error event after a heartbeat", async () => {
    server.dispatch.script.refuseWith = new AppError("overloaded", "full", { retryAfterMs: 1 });
    const reply = await post({ ...hello, stream: true });
    expect(reply.status).toBe(503);
    const patient = await startTestMaster({ fixedTimes: { streamHeartbeatMs: 20 } });
    const begin = Promise.withResolvers<void>();
    patient.dispatch.script = { startAfter: begin.promise };
    const body = { ...hello, stream: true };
    const late = await send(patient, "POST", "/api/v1/responses", body);
    patient.dispatch.script.refuseWith = new AppError("overloaded", "full");
    begin.resolve();
    const events = eventsOf(await late.text());
    expect(events).toHaveLength(1);
    expect(JSON.parse(events[0]?.data ?? "")).toMatchObject({
      type: "error",
      sequence_number: 0,
      code: "overloaded",
    });
    await patient.master.close();
  });

  it.each([true, false])("is cancelled by a client that hangs up, stream %s", async (stream) => {
    server.dispatch.script.tokenDelayMs = 20;
    const abort = new AbortController();
    const reply = post({ ...hello, stream, max_output_tokens: 5000 }, abort.signal);
    if (stream) await (await reply).body?.getReader().read();
    await eventually(() => server.dispatch.running === 1);
    abort.abort();
    await reply.catch(() => undefined);
    await eventually(() => server.dispatch.running === 0);
    await eventually(() => server.rows.at(-1)?.errorCode === "cancelled");
  });
});

const TEXT = { type: "input_text", text: "see" };
const IMAGE = { type: "input_image", image_url: "data:image/png;base64,AA==" };
const ALLOWED = {
  type: "allowed_tools",
  mode: "auto",
  tools: [{ type: "function", name: "g" }],
};

describe("responses: bad requests", () => {
  const tool = { type: "function", name: "f", parameters: {} };
  it.each<[string, object]>([
    ["input", { input: null }],
    ["input[0].type", { input: [{ type: "web_search_call" }] }],
    ["input[0].content[1].type", { input: [{ role: "user", content: [TEXT, IMAGE] }] }],
    ["input[0].role", { input: [{ role: "tool", content: "x" }] }],
    ["input[0].call_id", { input: [{ type: "function_call_output", call_id: "a", output: "" }] }],
    ["input[0].output", { input: [{ type: "function_call_output", call_id: "a" }] }],
    ["tools[1].type", { tools: [tool, { type: "web_search" }] }],
    ["tools[1].name", { tools: [tool, tool] }],
    ["tool_choice.type", { tool_choice: { type: "file_search" } }],
    ["tool_choice.name", { tools: [tool], tool_choice: { type: "function", name: "g" } }],
    ["tool_choice.tools[0].name", { tools: [tool], tool_choice: ALLOWED }],
    ["tool_choice", { tool_choice: "required" }],
    ["text.format.schema", { text: { format: { type: "json_schema", name: "a" } } }],
    ["text.format.type", { text: { format: { type: "grammar" } } }],
    ["text.verbosity", { text: { verbosity: "low" } }],
    ["reasoning.effort", { reasoning: { effort: "huge" } }],
    ["reasoning.mode", { reasoning: { mode: "pro" } }],
    ["reasoning.context", { reasoning: { context: "all_turns" } }],
    ["tools[0].name", { tools: [{ ...tool, name: "f".repeat(129) }] }],
    ["tools[0].defer_loading", { tools: [{ ...tool, defer_loading: true }] }],
    ["max_output_tokens", { max_output_tokens: 0 }],
    ["max_output_tokens", { max_output_tokens: 1e9 }],
    ["temperature", { temperature: 3 }],
    ["top_logprobs", { top_logprobs: 2 }],
    ["stream_options", { stream_options: {} }],
    ["truncation", { truncation: "middle" }],
    ["service_tier", { service_tier: "scale" }],
    ["prompt", { prompt: { id: "pmpt_1" } }],
    ["include[0]", { include: ["everything"] }],
    ["metadata", { metadata: Object.fromEntries([...Array(17).keys()].map((i) => [i, ""])) }],
  ])("are 400 with the param %s", async (param, body) => {
    const reply = await post({ ...hello, ...body });
    const { error } = (await reply.json()) as { error: { param: string; message: string } };
    expect([reply.status, error.param]).toEqual([400, param]);
    expect(error.message).toContain(param);
  });

  it("tolerate unknown fields", async () => {
    const reply = await post({ ...hello, bogus: 1, text: { format: { type: "text" }, new: 1 } });
    expect(reply.status).toBe(200);
  });

  it("take names of 128 characters, and what newer clients send by default", async () => {
    const long = { ...tool, name: "f".repeat(128), defer_loading: false };
    const reasoning = { mode: "standard", context: "auto" };
    expect((await post({ ...hello, tools: [long], reasoning })).status).toBe(200);
  });
});
