// holds: api-parameters, api-metadata-priority

import { chatCompletionRequest } from "@heddle/contracts/api/chat";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { postChat } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

const base = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "hi" }] };

function labels(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`label-${i}`, "v"]));
}

/** Parameters, and the part of the engine's request that each must set. */
const HONOURED: readonly (readonly [Record<string, unknown>, Record<string, unknown>])[] = [
  [{ temperature: 0 }, { sampling: { temperature: 0 } }],
  [{ temperature: 2 }, { sampling: { temperature: 2 } }],
  [{ top_p: 0.5 }, { sampling: { topP: 0.5 } }],
  [{ top_p: 0 }, { sampling: { topP: 1e-6 } }],
  [{ top_k: 40 }, { sampling: { topK: 40 } }],
  [{ top_k: -1 }, { sampling: { topK: undefined } }],
  [{ min_p: 0.05 }, { sampling: { minP: 0.05 } }],
  [{ repetition_penalty: 1.1 }, { sampling: { repetitionPenalty: 1.1 } }],
  [{ min_tokens: 2, max_tokens: 4 }, { minTokens: 2 }],
  [{ deterministic: true }, { deterministic: true }],
  [{ ignore_eos: true }, { ignoreEnd: true }],
  [{ thinking_token_budget: 0 }, { reasoningTokens: 0 }],
  [{ max_tokens: 3 }, { maxTokens: 3 }],
  [{ max_completion_tokens: 4 }, { maxTokens: 4 }],
  [{ n: 2, max_tokens: 1 }, { choices: 2 }],
  [{ stop: "END" }, { stop: ["END"] }],
  [{ stop: ["a", "b", "c", "d"] }, { stop: ["a", "b", "c", "d"] }],
  [{ seed: 42 }, { sampling: { seed: 42 } }],
  [{ seed: -1 }, { sampling: { seed: 4294967295 } }],
  [{ seed: 2 ** 32 + 1 }, { sampling: { seed: 0 } }],
  [{ seed: 2 ** 33 + 1 }, { sampling: { seed: 3 } }],
  [{ seed: 2 ** 63 }, { sampling: { seed: 2 ** 31 } }],
  [{ seed: -(2 ** 63) }, { sampling: { seed: 2 ** 31 } }],
  [{ presence_penalty: -2 }, { sampling: { presencePenalty: -2 } }],
  [{ frequency_penalty: 2 }, { sampling: { frequencyPenalty: 2 } }],
  [
    { logit_bias: { "50": -100, "7": 1.5 } },
    {
      sampling: {
        logitBias: [
          { token: 7, bias: 1.5 },
          { token: 50, bias: -100 },
        ],
      },
    },
  ],
  [{ logprobs: true }, { topLogprobs: 0 }],
  [{ logprobs: true, top_logprobs: 20 }, { topLogprobs: 20 }],
  [{ response_format: { type: "json_object" } }, { format: "json_object" }],
  [
    { response_format: { type: "json_object", schema: { type: "null" } } },
    { format: { kind: "json_schema", schema: '{"type":"null"}' } },
  ],
  [{ response_format: { type: "text" } }, { format: "text" }],
  [
    {
      response_format: {
        type: "json_schema",
        json_schema: { name: "n", schema: { type: "null" } },
      },
    },
    { format: { kind: "json_schema", schema: '{"type":"null"}' } },
  ],
  [
    { response_format: { type: "json_schema", json_schema: { name: "n" } } },
    { format: { kind: "json_schema", schema: '{"type":"object"}' } },
  ],
];

/** Parameters whose effects other tests show. */
const OTHERS =
  "model messages tools tool_choice parallel_tool_calls reasoning_effort stream stream_options metadata priority service_tier user safety_identifier prompt_cache_key".split(
    " ",
  );

async function requestFor(extra: Record<string, unknown>) {
  const reply = await postChat(server, { ...base, ...extra });
  expect(await reply.text()).toBeTruthy();
  expect(reply.status).toBe(200);
  return server.dispatch.calls.at(-1)?.request;
}

function functionOf(name: string) {
  return { type: "function", function: { name } };
}

describe("parameters: an honoured one reaches the engine", () => {
  it("priority: larger goes later, as in vLLM, and none overtakes ordinary calls", async () => {
    await requestFor({ priority: 7 });
    expect(server.dispatch.calls.at(-1)?.priority).toBe(-7);
    await requestFor({});
    expect(server.dispatch.calls.at(-1)?.priority).toBe(0);
    const reply = await postChat(server, { ...base, priority: -1 });
    expect([reply.status, (await reply.text()).includes('"param":"priority"')]).toEqual([
      400,
      true,
    ]);
  });

  it("metadata: is in the usage row", async () => {
    const metadata = { team: "search", run: "17" };
    await requestFor({ metadata });
    expect(server.rows.at(-1)).toMatchObject({ metadata });
  });

  it("defaults: OpenAI's apply where a parameter is absent or null", async () => {
    const defaults = {
      sampling: {
        temperature: 1,
        topP: 1,
        presencePenalty: 0,
        frequencyPenalty: 0,
        seed: undefined,
      },
      choices: 1,
      maxTokens: undefined,
      stop: [],
      topLogprobs: undefined,
      format: "text",
    };
    expect(await requestFor({})).toMatchObject(defaults);
    const nulls = [
      "temperature",
      "top_p",
      "max_tokens",
      "n",
      "stop",
      "seed",
      "logit_bias",
      "logprobs",
    ];
    const absent = Object.fromEntries(nulls.map((name) => [name, null]));
    expect(
      await requestFor({ ...absent, response_format: null, tools: null, stream: null }),
    ).toMatchObject(defaults);
  });

  it("every one of the contract has a case here or in other tests", () => {
    const cases = HONOURED.flatMap(([extra]) => Object.keys(extra));
    const known = new Set([...cases, ...OTHERS]);
    expect([...known].sort()).toEqual(Object.keys(chatCompletionRequest.shape).sort());
  });

  it.each(HONOURED)("%j", async (extra, expected) => {
    expect(await requestFor(extra)).toMatchObject(expected);
  });

  it("messages: every role is passed on, with parts joined as lines", async () => {
    const request = await requestFor({
      messages: [
        { role: "developer", content: "be brief", name: "dev" },
        {
          role: "system",
          content: [
            { type: "text", text: "a" },
            { type: "text", text: "b" },
          ],
        },
        { role: "user", content: "hi" },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: "{}" } }],
        },
        { role: "tool", content: "42", tool_call_id: "c1" },
        { role: "assistant", refusal: "no" },
        { role: "assistant", content: "", refusal: "never" },
        { role: "assistant", content: "I think", refusal: "not" },
      ],
    });
    expect(request).toMatchObject({
      input: {
        kind: "chat",
        messages: [
          { role: "developer", content: "be brief", name: "dev" },
          { role: "system", content: "a\nb" },
          { role: "user", content: "hi" },
          { role: "assistant", content: null, toolCalls: [{ id: "c1" }] },
          { role: "tool", content: "42", toolCallId: "c1" },
          { role: "assistant", content: "no" },
          { role: "assistant", content: "never" },
          { role: "assistant", content: "I think\nnot" },
        ],
      },
    });
  });
});

describe("parameters: one without effect is accepted if it asks for the default", () => {
  it.each([
    { tools: [] },
    { tool_choice: "none" },
    { tool_choice: "auto" },
    { parallel_tool_calls: true },
    { modalities: ["text"] },
    { audio: null },
    { reasoning_effort: null },
    { verbosity: "medium" },
    { store: false },
    { service_tier: "auto" },
    { service_tier: "default" },
    { user: "u1" },
    { safety_identifier: "s1" },
    { metadata: { team: "a" } },
    { metadata: { ...labels(15), ["k".repeat(64)]: "v".repeat(512) } },
    { prompt_cache_key: "k" },
    { prompt_cache_retention: "in_memory" },
    { prompt_cache_options: { mode: "implicit", ttl: "30m" } },
    { a_field_of_next_year: { deep: [1] } },
  ])("%j", async (extra) => {
    expect(await requestFor(extra)).toBeDefined();
  });

  it("user: the caller's user is in the usage row", async () => {
    await requestFor({ user: "u1", safety_identifier: "s1" });
    expect(server.rows.at(-1)?.endUser).toBe("s1");
  });
});

describe("parameters: an unsupported one is 400 and names the parameter", () => {
  it.each<[string, string, Record<string, unknown>]>([
    ["invalid_value", "tools[0].type", { tools: [{ type: "custom", custom: { name: "f" } }] }],
    ["invalid_value", "tools[0].function.name", { tools: [functionOf("a b")] }],
    ["invalid_value", "tools[1].function.name", { tools: [functionOf("f"), functionOf("f")] }],
    ["invalid_value", "tool_choice", { tool_choice: "required" }],
    [
      "invalid_value",
      "tool_choice.function.name",
      { tools: [functionOf("f")], tool_choice: functionOf("g") },
    ],
    [
      "invalid_value",
      "tool_choice.allowed_tools.tools[0].function.name",
      {
        tools: [functionOf("f")],
        tool_choice: {
          type: "allowed_tools",
          allowed_tools: { mode: "auto", tools: [functionOf("g")] },
        },
      },
    ],
    ["unsupported_parameter", "functions", { functions: [{ name: "f" }] }],
    ["unsupported_parameter", "functions", { functions: [] }],
    ["unsupported_parameter", "function_call", { function_call: "none" }],
    ["unsupported_parameter", "function_call", { function_call: "auto" }],
    ["unsupported_parameter", "function_call", { function_call: { name: "f" } }],
    ["unsupported_parameter", "audio", { audio: { voice: "a" } }],
    ["unsupported_parameter", "modalities", { modalities: ["text", "audio"] }],
    ["unsupported_parameter", "prediction", { prediction: { type: "content", content: "x" } }],
    ["unsupported_parameter", "web_search_options", { web_search_options: {} }],
    ["unsupported_parameter", "guided_json", { guided_json: {} }],
    ["unsupported_parameter", "best_of", { best_of: 3 }],
    ["unsupported_parameter", "use_beam_search", { use_beam_search: true }],
    ["unsupported_parameter", "stop_token_ids", { stop_token_ids: [2] }],
    ["unsupported_parameter", "bad_words", { bad_words: ["no"] }],
    ["unsupported_parameter", "chat_template", { chat_template: "{{ x }}" }],
    ["invalid_value", "reasoning_effort", { reasoning_effort: "huge" }],
    ["unsupported_parameter", "verbosity", { verbosity: "low" }],
    ["unsupported_parameter", "store", { store: true }],
    ["invalid_value", "service_tier", { service_tier: "scale" }],
    [
      "missing_required_parameter",
      "response_format.json_schema",
      { response_format: { type: "json_schema" } },
    ],
    [
      "missing_required_parameter",
      "response_format.json_schema.name",
      { response_format: { type: "json_schema", json_schema: {} } },
    ],
    [
      "invalid_value",
      "response_format.json_schema.schema",
      {
        response_format: {
          type: "json_schema",
          json_schema: { name: "n", schema: { title: "x".repeat(300_000) } },
        },
      },
    ],
    ["invalid_value", "response_format.type", { response_format: { type: "xml" } }],
    ["missing_required_parameter", "response_format.type", { response_format: {} }],
    ["missing_required_parameter", "model", { model: undefined }],
    ["missing_required_parameter", "messages", { messages: undefined }],
    ["invalid_value", "messages", { messages: [] }],
    ["invalid_value", "messages", { messages: "hi" }],
    ["invalid_value", "messages[0].role", { messages: [{ role: "robot", content: "x" }] }],
    ["missing_required_parameter", "messages[0].role", { messages: [{ content: "x" }] }],
    ["missing_required_parameter", "messages[0].content", { messages: [{ role: "user" }] }],
    ["invalid_value", "messages[0].content", { messages: [{ role: "user", content: null }] }],
    ["invalid_value", "messages[0].content", { messages: [{ role: "user", content: 7 }] }],
    [
      "invalid_value",
      "messages[0].content[1].type",
      {
        messages: [
          {
            role: "user",
            content: [
              { type: "text", text: "a" },
              { type: "image_url", image_url: {} },
            ],
          },
        ],
      },
    ],
    [
      "missing_required_parameter",
      "messages[0].tool_call_id",
      { messages: [{ role: "tool", content: "x" }] },
    ],
    [
      "invalid_value",
      "messages[1].tool_call_id",
      { messages: [...base.messages, { role: "tool", content: "x", tool_call_id: "c1" }] },
    ],
    ["invalid_value", "temperature", { temperature: 2.1 }],
    ["invalid_value", "temperature", { temperature: "hot" }],
    ["invalid_value", "top_p", { top_p: -0.1 }],
    ["invalid_value", "max_tokens", { max_tokens: 0 }],
    ["invalid_value", "max_tokens", { max_tokens: 1.5 }],
    ["invalid_value", "max_tokens", { max_tokens: 131_073 }],
    ["invalid_value", "max_completion_tokens", { max_completion_tokens: 131_073 }],
    ["invalid_value", "max_tokens", { max_tokens: 3, max_completion_tokens: 4 }],
    ["invalid_value", "n", { n: 0 }],
    ["invalid_value", "n", { n: 129 }],
    ["invalid_value", "stop", { stop: ["a", "b", "c", "d", "e"] }],
    ["invalid_value", "stop[1]", { stop: ["a", 7] }],
    ["invalid_value", "seed", { seed: 1.5 }],
    ["invalid_value", "seed", { seed: 2 ** 64 }],
    [
      "missing_required_parameter",
      "messages[1].content",
      { messages: [...base.messages, { role: "assistant", content: null, tool_calls: [] }] },
    ],
    ["invalid_value", "presence_penalty", { presence_penalty: 3 }],
    ["invalid_value", "frequency_penalty", { frequency_penalty: -3 }],
    ["invalid_value", "logit_bias.50", { logit_bias: { "50": 101 } }],
    ["invalid_value", "logit_bias.hello", { logit_bias: { hello: 1 } }],
    ["invalid_value", "logprobs", { logprobs: 5 }],
    ["invalid_value", "top_logprobs", { top_logprobs: 3 }],
    ["invalid_value", "top_logprobs", { logprobs: true, top_logprobs: 21 }],
    ["invalid_value", "stream", { stream: "yes" }],
    ["invalid_value", "stream_options", { stream_options: { include_usage: true } }],
    [
      "invalid_value",
      "stream_options.include_usage",
      { stream: true, stream_options: { include_usage: 1 } },
    ],
    ["invalid_value", "user", { user: 7 }],
    ["invalid_value", "metadata", { metadata: [] }],
    ["invalid_value", "metadata", { metadata: labels(17) }],
    ["invalid_value", `metadata.${"k".repeat(65)}`, { metadata: { ["k".repeat(65)]: "v" } }],
    ["invalid_value", "metadata.team", { metadata: { team: "v".repeat(513) } }],
    ["invalid_value", "metadata.team", { metadata: { team: 7 } }],
  ])("%s at %s: %j", async (code, param, extra) => {
    const reply = await postChat(server, { ...base, ...extra });
    const { error } = (await reply.json()) as { error: Record<string, unknown> };
    expect(error).toMatchObject({ code, param, type: "invalid_request_error", retryable: false });
    expect(error["message"]).toContain(param);
    expect(reply.status).toBe(400);
    expect(reply.headers.get("x-should-retry")).toBe("false");
  });

  it.each([
    ["a number", 7, "expected string or array"],
    ["an empty text", "", "Too small: expected string to have >=1 characters"],
    ["five texts", ["a", "b", "c", "d", "e"], "Too big: expected array to have <=4 items"],
    // More items than the text's bound in characters, which zod checks for lists too.
    ["2,000 texts", Array(2_000).fill("a"), "Too big: expected array to have <=4 items"],
  ])("stop: %s is refused with what is allowed", async (_what, stop, allowed) => {
    const reply = await postChat(server, { ...base, stop });
    const message = `Invalid value for 'stop': ${allowed}.`;
    expect(await reply.json()).toMatchObject({ error: { message } });
  });

  it.each(["image_url", "input_audio", "file"])(
    "a part of %s: it says what to send",
    async (type) => {
      const content = [
        { type: "text", text: "what is this?" },
        { type, [type]: {} },
      ];
      const reply = await postChat(server, { ...base, messages: [{ role: "user", content }] });
      const param = "messages[0].content[1].type";
      const message = expect.stringContaining("send text parts only");
      expect(await reply.json()).toMatchObject({ error: { param, message } });
    },
  );
});
