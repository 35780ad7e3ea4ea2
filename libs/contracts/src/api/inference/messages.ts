import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { countTokensRequest, messagesRequest } from "./messages-request.ts";

const index = z.int();

/** Members of Anthropic's types that nothing here has. */
function nulls<Name extends string>(...names: Name[]) {
  return Object.fromEntries(names.map((name) => [name, z.null()])) as Record<Name, z.ZodNull>;
}

/** The error body of the Messages API, which is Anthropic's with three further members. */
export const messagesError = z
  .object({
    type: z.literal("error"),
    error: z.object({
      type: z.string(),
      message: z.string(),
      param: z.string().nullable(),
      code: z.string(),
      retryable: z.boolean().describe("Whether the same request may succeed later."),
    }),
    request_id: z.string(),
  })
  .meta({ id: "MessagesErrorResponse", description: "An error of the Messages API." });

const usage = z
  .object({
    input_tokens: z.int().describe("Those of the prompt that no cache had."),
    cache_creation_input_tokens: z.literal(0),
    cache_read_input_tokens: z.int(),
    output_tokens: z.int(),
    output_tokens_details: z.object({ thinking_tokens: z.int() }),
    ...nulls("cache_creation", "inference_geo", "server_tool_use", "service_tier", "speed"),
  })
  .meta({ id: "MessageUsage" });

const textBlock = z.object({ type: z.literal("text"), text: z.string(), citations: z.null() });
const thinkingBlock = z.object({
  type: z.literal("thinking"),
  thinking: z.string(),
  signature: z.literal(""),
});
const toolUseBlock = z.object({
  type: z.literal("tool_use"),
  id: z.string(),
  name: z.string(),
  input: z.looseObject({}),
  caller: z.object({ type: z.literal("direct") }),
});
const block = z.discriminatedUnion("type", [textBlock, thinkingBlock, toolUseBlock]);

const stopReason = z.enum(["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]);
const stop = {
  stop_reason: stopReason.nullable(),
  stop_sequence: z.string().nullable(),
  ...nulls("stop_details", "container"),
};

const message = z
  .object({
    id: z.string(),
    type: z.literal("message"),
    role: z.literal("assistant"),
    model: z.string(),
    content: z.array(block).describe("Without a call whose arguments were cut."),
    ...stop,
    usage,
    ...nulls("diagnostics"),
    system_fingerprint: z.string().describe("The deployment, and whether it is a stand-in."),
  })
  .meta({ id: "Message" });

export type MessageAnswer = DataOf<typeof message>;
export type MessageBlock = MessageAnswer["content"][number];

const delta = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text_delta"), text: z.string() }),
  z.object({ type: z.literal("thinking_delta"), thinking: z.string() }),
  z.object({ type: z.literal("input_json_delta"), partial_json: z.string() }),
]);

const messageEvents = {
  message_start: z.object({ type: z.literal("message_start"), message }),
  content_block_start: z.object({
    type: z.literal("content_block_start"),
    index,
    content_block: block,
  }),
  content_block_delta: z.object({ type: z.literal("content_block_delta"), index, delta }),
  content_block_stop: z.object({ type: z.literal("content_block_stop"), index }),
  message_delta: z.object({ type: z.literal("message_delta"), delta: z.object(stop), usage }),
  message_stop: z.object({ type: z.literal("message_stop") }),
};

type MessageEvents = typeof messageEvents;

/** An event of a streamed message, by its `type`. */
export type MessageEvent = {
  [Type in keyof MessageEvents]: DataOf<MessageEvents[Type]>;
}[keyof MessageEvents];

const ping = z.object({ type: z.literal("ping") });
const tokenCount = z.object({ input_tokens: z.int() }).meta({ id: "MessageTokenCount" });

export type MessageTokenCount = DataOf<typeof tokenCount>;

export const messageOperations = {
  create: {
    operationId: "createMessage",
    method: "POST",
    path: "/api/v1/messages",
    permission: "inference:create",
    summary: "Creates a message as Anthropic's API does, whole or as a stream.",
    headers: ["X-Heddle-Priority"],
    body: messagesRequest,
    replies: {
      200: {
        ...json(message),
        "text/event-stream": { ...messageEvents, ping, error: messagesError },
      },
    },
  },
  countTokens: {
    operationId: "countMessageTokens",
    method: "POST",
    path: "/api/v1/messages/count_tokens",
    permission: "inference:create",
    summary: "Counts the tokens of a message's prompt.",
    body: countTokensRequest,
    replies: { 200: json(tokenCount) },
  },
} as const satisfies Record<string, ApiOperation>;
