import { z } from "zod";
import { answeredTier, cacheWriteTokens } from "../chat.ts";
import type { DataOf } from "../operation.ts";
import { contentPart, outputItem, tokenScores } from "./items.ts";
import { TOOL_CHOICES } from "./request.ts";

const usage = z
  .object({
    input_tokens: z.int(),
    input_tokens_details: z.object({
      cached_tokens: z.int(),
      cache_write_tokens: cacheWriteTokens,
    }),
    output_tokens: z.int(),
    output_tokens_details: z.object({ reasoning_tokens: z.int() }),
    total_tokens: z.int(),
  })
  .meta({ id: "ResponseUsage" });

const textFormat = z.union([
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    name: z.string(),
    description: z.string().optional(),
    schema: z.looseObject({}),
    strict: z.boolean(),
  }),
]);

const tool = z.object({
  type: z.literal("function"),
  name: z.string(),
  description: z.string().nullable(),
  parameters: z.looseObject({}).nullable(),
  strict: z.boolean(),
});

const named = z.object({ type: z.literal("function"), name: z.string() });
const toolChoice = z.union([
  z.enum(TOOL_CHOICES),
  named,
  z.object({
    type: z.literal("allowed_tools"),
    mode: z.enum(["auto", "required"]),
    tools: z.array(named),
  }),
]);

const status = z.enum(["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]);

/** OpenAI's codes of a failed response, as far as there are such failures. */
const failure = z
  .object({
    code: z.enum(["server_error", "rate_limit_exceeded", "invalid_prompt"]),
    message: z.string(),
  })
  .meta({ id: "ResponseError" });

export const response = z
  .object({
    id: z.string(),
    object: z.literal("response"),
    created_at: z.int().describe("Seconds since the epoch."),
    completed_at: z.int().nullable(),
    status,
    background: z.boolean(),
    error: failure.nullable(),
    incomplete_details: z
      .object({ reason: z.enum(["max_output_tokens", "content_filter"]) })
      .nullable(),
    instructions: z.string().nullable(),
    max_output_tokens: z.int().nullable(),
    max_tool_calls: z.int().nullable(),
    metadata: z.record(z.string(), z.string()),
    model: z.string(),
    output: z.array(outputItem),
    parallel_tool_calls: z.boolean(),
    previous_response_id: z.string().nullable(),
    conversation: z.object({ id: z.string() }).nullable(),
    prompt_cache_key: z.string().nullable(),
    reasoning: z.object({ effort: z.string().nullable(), summary: z.string().nullable() }),
    safety_identifier: z.string().nullable(),
    service_tier: answeredTier,
    store: z.boolean(),
    system_fingerprint: z.string().describe("The deployment, and whether it is a stand-in."),
    temperature: z.number(),
    text: z.object({ format: textFormat, verbosity: z.literal("medium") }),
    tool_choice: toolChoice,
    tools: z.array(tool),
    top_logprobs: z.int(),
    top_p: z.number(),
    truncation: z.enum(["auto", "disabled"]),
    usage: usage.optional().describe("Of a response that has ended."),
    user: z.string().optional(),
  })
  .meta({ id: "Response" });

const at = { sequence_number: z.int(), output_index: z.int() };
const within = { ...at, item_id: z.string() };
const inPart = { ...within, content_index: z.int() };
const obfuscation = z.string().optional();

function ofResponse<Type extends string>(type: Type) {
  return z.object({ type: z.literal(type), sequence_number: z.int(), response });
}

/** The events of a stream by name, which is their `type`. */
export const responseEvents = {
  "response.created": ofResponse("response.created"),
  "response.queued": ofResponse("response.queued"),
  "response.in_progress": ofResponse("response.in_progress"),
  "response.completed": ofResponse("response.completed"),
  "response.incomplete": ofResponse("response.incomplete"),
  "response.failed": ofResponse("response.failed"),
  "response.output_item.added": z.object({
    ...at,
    type: z.literal("response.output_item.added"),
    item: outputItem,
  }),
  "response.output_item.done": z.object({
    ...at,
    type: z.literal("response.output_item.done"),
    item: outputItem,
  }),
  "response.content_part.added": z.object({
    ...inPart,
    type: z.literal("response.content_part.added"),
    part: contentPart,
  }),
  "response.content_part.done": z.object({
    ...inPart,
    type: z.literal("response.content_part.done"),
    part: contentPart,
  }),
  "response.output_text.delta": z.object({
    ...inPart,
    type: z.literal("response.output_text.delta"),
    delta: z.string(),
    logprobs: tokenScores,
    obfuscation,
  }),
  "response.output_text.done": z.object({
    ...inPart,
    type: z.literal("response.output_text.done"),
    text: z.string(),
    logprobs: tokenScores,
  }),
  "response.reasoning_text.delta": z.object({
    ...inPart,
    type: z.literal("response.reasoning_text.delta"),
    delta: z.string(),
    obfuscation,
  }),
  "response.reasoning_text.done": z.object({
    ...inPart,
    type: z.literal("response.reasoning_text.done"),
    text: z.string(),
  }),
  "response.function_call_arguments.delta": z.object({
    ...within,
    type: z.literal("response.function_call_arguments.delta"),
    delta: z.string(),
    obfuscation,
  }),
  "response.function_call_arguments.done": z.object({
    ...within,
    type: z.literal("response.function_call_arguments.done"),
    name: z.string(),
    arguments: z.string(),
  }),
  error: z.object({
    type: z.literal("error"),
    sequence_number: z.int(),
    code: z.string().nullable(),
    message: z.string(),
    param: z.string().nullable(),
  }),
} as const;

type Events = typeof responseEvents;
export type ResponseEvent = { [Type in keyof Events]: DataOf<Events[Type]> }[keyof Events];
export type ApiResponse = DataOf<typeof response>;
export type ResponseUsage = DataOf<typeof usage>;
