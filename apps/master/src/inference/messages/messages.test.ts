// holds: api-messages

import { AppError } from "@heddle/base/errors";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { eventsOf, send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster({ fixedTimes: { streamHeartbeatMs: 30 } });
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

const thoughtful = {
  model: "FamilyA-1-2B",
  max_tokens: 4,
  messages: [{ role: "user", content: "<think>one two</think> three" }],
};

async function ask(more: object = {}, key?: string) {
  const body = { ...thoughtful, ...more };
  return send(server, "POST", "/api/v1/messages", body, key === undefined ? {} : { key });
}

async function streamed(more: object = {}) {
  const reply = await ask({ stream: true, ...more });
  return eventsOf(await reply.text());
}

it("messages: thinking is a block of its own, before the text", async () => {
  server.dispatch.script.finish = { reason: "stop" };
  const reply = await ask();
  expect(await reply.json()).toMatchObject({
    content: [
      { type: "thinking", thinking: "one two" },
      { type: "text", text: "three word3" },
    ],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: {
      input_tokens: 2,
      cache_read_input_tokens: 1,
      output_tokens: 4,
      output_tokens_details: { thinking_tokens: expect.any(Number) },
    },
    system_fingerprint: "tiny (stand-in)",
  });
  expect(reply.headers.get("request-id")).toMatch(/^req_/);
  expect(reply.headers.get("x-ratelimit-limit-tokens")).not.toBeNull();
  const events = await streamed();
  const types = events.map(({ type }) => type);
  expect(types.filter((type) => !type.endsWith("delta"))).toEqual([
    "message_start",
    "content_block_start",
    "content_block_stop",
    "content_block_start",
    "content_block_stop",
    "message_stop",
  ]);
  expect(types.at(-2)).toBe("message_delta");
});

it("messages: thinking that is omitted is an empty block", async () => {
  const thinking = { type: "adaptive", display: "omitted" };
  const { content } = (await (await ask({ thinking })).json()) as { content: object[] };
  expect(content[0]).toEqual({ type: "thinking", thinking: "", signature: "" });
  expect(content[1]).toMatchObject({ type: "text" });
  const deltas = (await streamed({ thinking })).map(({ data }) => data);
  expect(deltas.join()).not.toContain("thinking_delta");
});

it("messages: a name of 128 characters and the highest efforts are taken", async () => {
  const name = "mcp__".padEnd(128, "x");
  const tools = [{ name, input_schema: { type: "object" }, allowed_callers: ["direct"] }];
  expect((await ask({ tools })).status).toBe(200);
  const refused: readonly (readonly [object, string])[] = [
    [{ tools: [{ ...tools[0], name: `${name}x` }] }, "tools[0].name"],
    [{ tools: [{ ...tools[0], allowed_callers: ["x"] }] }, "tools[0].allowed_callers[0]"],
    [{ speed: "fast" }, "speed"],
    [{ thinking: { type: "adaptive", display: "x" } }, "thinking.display"],
  ];
  for (const [more, param] of refused) {
    const reply = await ask(more);
    expect(reply.status).toBe(400);
    expect(await reply.json()).toMatchObject({ error: { param } });
  }
  for (const effort of ["xhigh", "max"]) {
    expect((await ask({ output_config: { effort } })).status).toBe(200);
    expect(server.dispatch.calls.at(-1)?.request).toMatchObject({ input: { effort } });
  }
});

it("messages: the reason of the end is the engine's", async () => {
  const reasonOf = async () =>
    ((await (await ask()).json()) as { stop_reason: string }).stop_reason;
  expect(await reasonOf()).toBe("max_tokens");
  server.dispatch.script.finish = { reason: "stop", stop: "x" };
  expect(await reasonOf()).toBe("stop_sequence");
  server.dispatch.script.finish = { reason: "content_filter" };
  expect(await reasonOf()).toBe("refusal");
});

it("messages: a wait gets pings, and a failure is an event without an end", async () => {
  server.dispatch.script = {
    tokenDelayMs: 100,
    failAfter: { tokens: 2, error: new AppError("engine_failed", "it crashed") },
  };
  const events = await streamed();
  const types = events.map(({ type }) => type);
  expect(types).toContain("ping");
  expect(types).not.toContain("message_stop");
  expect(JSON.parse(events.at(-1)?.data ?? "")).toMatchObject({
    type: "error",
    error: { type: "api_error", message: "it crashed", code: "engine_failed" },
  });
  expect(server.rows.at(-1)).toMatchObject({ completionTokens: 2, errorCode: "engine_failed" });
});

it("messages: an answer that the worker did not end is an error", async () => {
  server.dispatch.script = { vanishAfter: 2 };
  const reply = await ask();
  expect(reply.status).toBe(502);
  expect(await reply.json()).toMatchObject({ type: "error", error: { code: "worker_lost" } });
});

it("messages: a key pays prompt and limit in advance, its user is in the ledger", async () => {
  const { text } = await server.addKey({ limits: { tokensPerMinute: 60 } });
  const metadata = { user_id: "u-1" };
  expect((await ask({ metadata }, text)).status).toBe(200);
  expect(server.rows.at(-1)).toMatchObject({ endUser: "u-1", completionTokens: 4 });
  const refusal = await ask({ max_tokens: 100 }, text);
  expect(refusal.status).toBe(429);
  expect(await refusal.json()).toMatchObject({ error: { type: "rate_limit_error" } });
});

it("messages: neighbouring messages are one turn, results come before the text", async () => {
  const input = { a: 1 };
  const call = { type: "tool_use", id: "toolu_1", name: "f", input };
  const result = { type: "tool_result", tool_use_id: "toolu_1", content: "no", is_error: true };
  const reply = await ask({
    system: [{ type: "text", text: "Be brief." }],
    tools: [{ name: "f", input_schema: { type: "object" } }],
    tool_choice: { type: "auto", disable_parallel_tool_use: true },
    messages: [
      { role: "user", content: "one" },
      { role: "user", content: [{ type: "text", text: "two" }] },
      { role: "assistant", content: [{ type: "thinking", thinking: "hm", signature: "" }, call] },
      { role: "user", content: [result, { type: "text", text: "three" }] },
    ],
  });
  expect(reply.status).toBe(200);
  const sent = server.dispatch.calls.at(-1)?.request;
  expect(sent).toMatchObject({
    toolUse: { choice: "auto", names: ["f"], parallel: false },
    input: {
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "one\ntwo" },
        { role: "assistant", content: null, toolCalls: [{ id: "toolu_1" }] },
        { role: "tool", content: "Error: no", toolCallId: "toolu_1" },
        { role: "user", content: "three" },
      ],
    },
  });
});
