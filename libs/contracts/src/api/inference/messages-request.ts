import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import {
  checkSchemaSize,
  directCallers,
  invalid,
  longFunctionName,
  MAX_TOOLS,
} from "../../chat-constraints.ts";
import { validate } from "../../validation.ts";
import { chatCompletionRequest } from "../chat.ts";

const MAX_MESSAGES = 4096;
const MAX_BLOCKS = 1024;
/** What an engine takes. */
const MAX_STOP_SEQUENCES = 32;

const textBlock = z.object({ type: z.literal("text"), text: z.string() });
const texts = z.union([z.string(), z.array(textBlock).max(MAX_BLOCKS)]);
const toolResult = z.object({
  type: z.literal("tool_result"),
  tool_use_id: z.string().min(1),
  content: texts.nullish(),
  is_error: z.boolean().nullish(),
});
const userContent = z.union([
  z.string(),
  z
    .array(z.discriminatedUnion("type", [textBlock, toolResult]))
    .min(1)
    .max(MAX_BLOCKS),
]);
const toolUse = z.object({
  type: z.literal("tool_use"),
  id: z.string().min(1),
  name: z.string().min(1),
  input: z.looseObject({}),
});
const assistantContent = z.union([
  z.string(),
  z
    .array(
      z.discriminatedUnion("type", [
        textBlock,
        toolUse,
        z.object({ type: z.literal("thinking"), thinking: z.string() }),
        z.object({ type: z.literal("redacted_thinking"), data: z.string() }),
      ]),
    )
    .max(MAX_BLOCKS),
]);

const message = z.discriminatedUnion("role", [
  z.object({ role: z.literal("user"), content: userContent }),
  z.object({ role: z.literal("assistant"), content: assistantContent }),
  z.object({ role: z.literal("system"), content: texts }),
]);

const messagesTool = z.object({
  type: z
    .literal("custom", "only tools that the caller runs, without a type, are served")
    .nullish(),
  name: longFunctionName,
  description: z.string().nullish(),
  input_schema: z.looseObject({}).describe("A JSON schema, which arguments always fit."),
  strict: z.boolean().nullish(),
  defer_loading: z.literal(false, "tools are never left out of the prompt").nullish(),
  allowed_callers: directCallers,
});

const parallel = { disable_parallel_tool_use: z.boolean().nullish() };
const messagesToolChoice = z.discriminatedUnion("type", [
  z.object({ type: z.literal("auto"), ...parallel }),
  z.object({ type: z.literal("any"), ...parallel }),
  z.object({ type: z.literal("tool"), name: z.string().min(1), ...parallel }),
  z.object({ type: z.literal("none") }),
]);

/** What both operations read: all that makes the prompt. */
const prompt = {
  model: z.string().min(1).max(200).describe("An id of `GET /models`."),
  messages: z
    .array(message)
    .min(1)
    .max(MAX_MESSAGES)
    .describe("Text, tool calls and their results; the last message is not the assistant's."),
  system: texts.nullish(),
  tools: z.array(messagesTool).max(MAX_TOOLS).nullish(),
  tool_choice: messagesToolChoice.nullish(),
  thinking: z
    .object({
      type: z.enum(["adaptive", "disabled", "enabled"]),
      budget_tokens: z.int().min(1).nullish(),
      display: z.enum(["summarized", "omitted"]).nullish(),
    })
    .nullish()
    .describe(
      "`adaptive` leaves it to the model; `enabled` needs `budget_tokens`. It is shown whole, or not with `display` `omitted`.",
    ),
};

const { temperature, top_p, top_k } = chatCompletionRequest.shape;

export const messagesRequest = z
  .object({
    ...prompt,
    max_tokens: z.int().min(1).describe("Within the model's context."),
    stop_sequences: z
      .array(z.string().min(1).max(1024))
      .max(MAX_STOP_SEQUENCES)
      .nullish()
      .describe("Texts that end the answer, which has none of them."),
    temperature,
    top_p,
    top_k,
    stream: z.boolean().nullish().describe("Answers as server-sent events."),
    metadata: z
      .object({ user_id: z.string().max(512).nullish() })
      .nullish()
      .describe("`user_id` is kept in the record of usage."),
    output_config: z
      .object({
        format: z.object({ type: z.literal("json_schema"), schema: z.looseObject({}) }).nullish(),
        effort: z.enum(["low", "medium", "high", "xhigh", "max"]).nullish(),
      })
      .nullish()
      .describe("`format`: the answer is JSON that fits the schema, whatever the model; `effort`."),
    service_tier: z.enum(["auto", "standard_only"]).nullish(),
    speed: z.literal("standard", "there is one speed").nullish(),
  })
  .meta({ id: "MessagesRequest" });

export const countTokensRequest = z.object(prompt).meta({ id: "CountMessageTokensRequest" });

export type MessagesRequest = z.infer<typeof messagesRequest>;
/** The part of a request that makes the prompt. */
export type MessagesPrompt = z.infer<typeof countTokensRequest>;
export type RequestMessage = MessagesRequest["messages"][number];

/** Members whose values would change the answer, and why they cannot be honoured. */
const REFUSED: readonly (readonly [param: string, why: string])[] = [
  ["container", "no code is run for a model"],
  ["mcp_servers", "no servers of tools are called"],
  ["context_management", "the caller keeps its context"],
  ["inference_geo", "the place of the answer cannot be chosen"],
];

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseMessagesRequest(body: unknown): MessagesRequest {
  const request = validate(messagesRequest, body);
  checkPrompt(request, body as Record<string, unknown>);
  checkThinking(request);
  checkSchemaSize("output_config.format.schema", request.output_config?.format?.schema);
  return request;
}

/** The same for a body whose tokens are counted. */
export function parseCountTokensRequest(body: unknown): MessagesPrompt {
  const request = validate(countTokensRequest, body);
  checkPrompt(request, body as Record<string, unknown>);
  return request;
}

function checkPrompt(request: MessagesPrompt, body: Record<string, unknown>): void {
  for (const [param, why] of REFUSED) {
    if (body[param] != null) throw unsupported(param, why);
  }
  checkTools(request);
  checkResults(request.messages);
  if (request.messages.at(-1)?.role !== "assistant") return;
  const last = `messages[${request.messages.length - 1}].role`;
  throw invalid(last, "an answer cannot be begun for the model; end with the user's message");
}

function checkThinking({ thinking, max_tokens: most }: MessagesRequest): void {
  const param = "thinking.budget_tokens";
  const { type, budget_tokens: budget } = thinking ?? {};
  if (type === "enabled" && budget == null) {
    const text = `Missing required parameter: '${param}': thinking that is enabled needs it.`;
    throw new AppError("missing_required_parameter", text, { param });
  }
  if (type !== "enabled" && budget != null) throw invalid(param, "it is for thinking `enabled`");
  if (budget != null && budget >= most) {
    throw invalid(param, `it must be less than the ${most} tokens of max_tokens`);
  }
}

function checkTools({ tools, tool_choice: choice }: MessagesPrompt): void {
  const names = new Set<string>();
  tools?.forEach(({ name, input_schema }, at) => {
    if (names.has(name)) throw invalid(`tools[${at}].name`, `${name} is there twice`);
    names.add(name);
    checkSchemaSize(`tools[${at}].input_schema`, input_schema);
  });
  if (choice?.type === "tool" && !names.has(choice.name)) {
    throw invalid("tool_choice.name", `no tool has the name ${choice.name}`);
  }
  if (choice?.type === "any" && names.size === 0) {
    throw invalid("tool_choice", "there are no tools to call");
  }
}

/** A result names a call of the assistant's message before it. */
function checkResults(messages: readonly RequestMessage[]): void {
  let asked = new Set<string>();
  messages.forEach(({ role, content }, index) => {
    if (typeof content === "string") return;
    if (role === "assistant") {
      asked = new Set(content.flatMap((block) => (block.type === "tool_use" ? [block.id] : [])));
    }
    content.forEach((block, at) => {
      if (block.type !== "tool_result" || asked.has(block.tool_use_id)) return;
      const why = "no tool_use of the assistant's message before it has this id";
      throw invalid(`messages[${index}].content[${at}].tool_use_id`, why);
    });
  });
}

function unsupported(param: string, why: string): AppError {
  const message = `Unsupported value for '${param}': ${why}.`;
  return new AppError("unsupported_parameter", message, { param });
}
