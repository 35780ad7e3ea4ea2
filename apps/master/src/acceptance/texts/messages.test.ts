import Anthropic from "@anthropic-ai/sdk";
import { Heddle } from "@heddle/client/heddle";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node clients against a master and a worker as processes.

let cluster: ProcessCluster;
let anthropic: Anthropic;
beforeAll(async () => {
  cluster = await ProcessCluster.start();
  anthropic = new Anthropic({
    baseURL: `${cluster.url}/api`,
    apiKey: cluster.adminKey,
    maxRetries: 0,
  });
});
afterAll(() => cluster.close());

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
