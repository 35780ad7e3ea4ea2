import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import {
  checkFormat,
  checkTools,
  invalid,
  MAX_TOOLS,
  responseFormat,
  tool,
  toolChoice,
} from "../chat-constraints.ts";
import { REASONING_EFFORTS } from "../engine.ts";
import { validate } from "../validation.ts";
import { errorResponse } from "./errors.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { boundedRecord } from "./parameters.ts";

/** Messages of one request; the body's size bounds their text. */
const MAX_MESSAGES = 4096;
const MAX_PARTS = 1024;
const MAX_LOGIT_BIAS = 1024;

const TEXT_ONLY = "send text parts only: no engine here reads images, audio or files";
const textPart = z.object({ type: z.literal("text", TEXT_ONLY), text: z.string() });
const refusalPart = z.object({ type: z.literal("refusal"), refusal: z.string() });
const content = z.union([z.string(), z.array(textPart).min(1).max(MAX_PARTS)]);
const assistantContent = z.union([
  z.string(),
  z
    .array(z.discriminatedUnion("type", [textPart, refusalPart]))
    .min(1)
    .max(MAX_PARTS),
]);

const toolCall = z.object({
  id: z.string().min(1),
  type: z.literal("function"),
  function: z.object({ name: z.string().min(1), arguments: z.string() }),
});

const name = z.string().max(256).optional();
const message = z.discriminatedUnion("role", [
  z.object({ role: z.literal("system"), content, name }),
  z.object({ role: z.literal("developer"), content, name }),
  z.object({ role: z.literal("user"), content, name }),
  z.object({
    role: z.literal("assistant"),
    content: assistantContent.nullish(),
    refusal: z.string().nullish(),
    name,
    tool_calls: z.array(toolCall).max(128).optional(),
    audio: z.null("is not supported; leave it out").optional(),
    function_call: z.null("is deprecated and not supported; use tool_calls").optional(),
  }),
  z.object({ role: z.literal("tool"), content, tool_call_id: z.string().min(1) }),
]);

/**
 * The contract's seeds are int64, but JSON numbers keep 53 bits. Neighbouring larger seeds may be
 * equal, which still gives the same answer each time.
 */
const seed = z
  .number()
  .min(-(2 ** 63))
  .max(2 ** 63)
  .refine(Number.isInteger, "expected a whole number");

const bias = z.number().min(-100).max(100);
/** OpenAI's bounds on a request's labels. */
const MAX_METADATA_PAIRS = 16;
const metadata = boundedRecord(
  z.string().max(64, "keys have at most 64 characters"),
  z.string().max(512),
  MAX_METADATA_PAIRS,
);
/** Above any vocabulary and any context. */
const MAX_VOCABULARY = 2 ** 31 - 1;
const MAX_PRIORITY = 100;
const tokenId = z.string().regex(/^\d{1,9}$/, "keys must be token ids");
const stopText = z.string().min(1).max(1024);

/** The tier that an answer had: `flex` is the priority `batch`, `priority` is `interactive`. */
export const answeredTier = z.enum(["default", "flex", "priority"]);

/** The chat completion request: every supported parameter. Unknown members are dropped. */
export const chatCompletionRequest = z
  .object({
    model: z.string().min(1).max(200).describe("An id of `GET /models`."),
    messages: z
      .array(message)
      .min(1)
      .max(MAX_MESSAGES)
      .describe("Text parts only; roles as in OpenAI's API."),
    temperature: z.number().min(0).max(2).nullish().describe("0 is greedy; 1 if absent."),
    top_p: z
      .number()
      .min(0)
      .max(1)
      .nullish()
      .describe("The exact nucleus; there is no hidden top-k."),
    max_tokens: z
      .int()
      .min(1)
      .nullish()
      .describe("Of each choice, within the context, which an answer may fill without it."),
    max_completion_tokens: z.int().min(1).nullish().describe("The same under its newer name."),
    n: z.int().min(1).max(128).nullish().describe("Choices."),
    stop: z
      .union([stopText, z.array(stopText).max(4)])
      .nullish()
      .describe("Texts that end the answer, also JSON by a schema, but no call."),
    seed: seed.nullish().describe("Choice i uses `seed` + i."),
    presence_penalty: z.number().min(-2).max(2).nullish().describe("Of tokens of the answer."),
    frequency_penalty: z
      .number()
      .min(-2)
      .max(2)
      .nullish()
      .describe("Of tokens of the answer, by their count."),
    logit_bias: boundedRecord(tokenId, bias, MAX_LOGIT_BIAS)
      .nullish()
      .describe("-100 to 100 by token id, at most 1,024 entries."),
    logprobs: z.boolean().nullish().describe("Of the raw scores."),
    top_logprobs: z.int().min(0).max(20).nullish().describe("Needs `logprobs`."),
    response_format: responseFormat
      .nullish()
      .describe(
        "`text`, `json_object` or `json_schema`, drawn by the schema whatever the model. Schemas have `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `propertyNames`, `items`, `prefixItems`, `additionalItems`, `unevaluatedProperties`, `unevaluatedItems`, `anyOf`, `oneOf`, `allOf`, `not`, `if`, `$ref` into the same schema, `multipleOf`, bounds of numbers, lengths and counts, `pattern` without look-around and back references, and the formats `date`, `time`, `date-time`, `duration`, `email`, `hostname`, `ipv4`, `ipv6`, `uuid`, `uri` and `int8` to `uint64`.",
      ),
    stream: z.boolean().nullish().describe("Answers as server-sent events."),
    stream_options: z
      .object({
        include_usage: z.boolean().nullish(),
        include_obfuscation: z.boolean().nullish(),
      })
      .nullish()
      .describe("`include_usage` and `include_obfuscation`; needs `stream`."),
    user: z.string().max(512).nullish().describe("Kept in the record of usage."),
    safety_identifier: z.string().max(512).nullish().describe("Kept in the record of usage."),
    prompt_cache_key: z
      .string()
      .max(512)
      .nullish()
      .describe("Accepted; the prefix cache needs no key."),
    metadata: metadata.nullish().describe("At most 16 pairs, kept in the record of usage."),
    // vLLM's extensions.
    top_k: z
      .int()
      .min(-1)
      .max(MAX_VOCABULARY)
      .nullish()
      .describe("The likeliest k; -1 and 0 for all."),
    min_p: z
      .number()
      .min(0)
      .max(1)
      .nullish()
      .describe("Share of the likeliest token's probability that a token needs."),
    repetition_penalty: z
      .number()
      .min(0.01)
      .max(100)
      .nullish()
      .describe("Of tokens of the prompt and the answer; 1 for none."),
    min_tokens: z
      .int()
      .min(0)
      .max(MAX_VOCABULARY)
      .nullish()
      .describe("Before it no token that ends the answer is drawn, and no text of `stop` ends it."),
    ignore_eos: z.boolean().nullish().describe("No token that ends the answer is drawn."),
    deterministic: z
      .boolean()
      .nullish()
      .describe(
        "Equal calls with the same `seed`, or at temperature 0, answer the same whatever else runs.",
      ),
    priority: z
      .int()
      .min(0)
      .max(MAX_PRIORITY)
      .nullish()
      .describe("As in vLLM, larger goes later; a call may yield to others, not overtake them."),
    service_tier: z
      .enum(["auto", "default", "flex", "priority"])
      .nullish()
      .describe(
        "`flex` yields to all others (`batch`); `priority` precedes them (`interactive`) and needs `inference:priority`.",
      ),
    tools: z.array(tool).max(MAX_TOOLS).nullish().describe("Functions that the model may call."),
    tool_choice: toolChoice
      .nullish()
      .describe("`auto` with tools if absent; the rest is met whatever the model."),
    parallel_tool_calls: z
      .boolean()
      .nullish()
      .describe("Whether there may be several calls; true if absent."),
    reasoning_effort: z
      .enum(REASONING_EFFORTS)
      .nullish()
      .describe("Of a model that reasons; else a 400, but for `none`."),
    // vLLM's.
    thinking_token_budget: z
      .int()
      .min(0)
      .max(MAX_VOCABULARY)
      .nullish()
      .describe("Tokens after which the reasoning is ended; a 400 where that cannot be done."),
  })
  .meta({ id: "CreateChatCompletionRequest" });

export type ChatCompletionRequest = z.infer<typeof chatCompletionRequest>;
export type ChatRequestMessage = ChatCompletionRequest["messages"][number];

const GUIDED = "guided decoding is not supported; use response_format `json_schema`";

/** Parameters that are refused unless their value is the actual behaviour. */
const REFUSED: readonly (readonly [
  string,
  (value: unknown, body: Record<string, unknown>) => boolean,
  string,
])[] = [
  ["functions", never, "functions are deprecated and not supported; use tools"],
  ["function_call", never, "functions are deprecated and not supported; use tool_choice"],
  ["audio", never, "audio output is not supported"],
  ["modalities", isTextOnly, "only the modality `text` is supported"],
  ["prediction", never, "predicted output is not supported"],
  ["web_search_options", never, "web search is not supported"],
  ["verbosity", (value) => value === "medium", "the verbosity cannot be chosen"],
  ["store", (value) => value === false, "completions are not stored; use false or leave it out"],
  ["prompt_cache_retention", (value) => value === "in_memory", "caches are kept in memory only"],
  ["prompt_cache_options", isImplicitCache, "the prefix cache needs no marks"],
  ["moderation", never, "inline moderation is not supported"],
  // Extensions of vLLM that would change the answer.
  ["best_of", (value, { n }) => value === (n ?? 1), "all answers are sent; it must equal `n`"],
  ["use_beam_search", (value) => value === false, "beam search is not supported"],
  ["length_penalty", (value) => value === 1, "it is for beam search, which is not supported"],
  ["stop_token_ids", isEmptyArray, "tokens cannot stop an answer; use `stop` with texts"],
  ["bad_words", isEmptyArray, "words cannot be forbidden; use `logit_bias` with tokens"],
  ["allowed_token_ids", isEmptyArray, "tokens cannot be chosen; use `logit_bias`"],
  ["chat_template", never, "a request cannot bring a template; the model's own is used"],
  ["guided_json", never, GUIDED],
  ["guided_regex", never, GUIDED],
  ["guided_choice", never, GUIDED],
  ["guided_grammar", never, GUIDED],
  ["structured_outputs", never, GUIDED],
];

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseChatCompletionRequest(body: unknown): ChatCompletionRequest {
  const request = validate(chatCompletionRequest, body);
  refuseUnsupported(body as Record<string, unknown>);
  checkCombinations(request);
  request.messages.forEach(checkMessage);
  checkToolAnswers(request.messages);
  return request;
}

/** Throws `unsupported_parameter` for what neither chats nor completions honour. */
export function refuseUnsupported(body: Record<string, unknown>): void {
  for (const [param, isNoOp, why] of REFUSED) {
    const value = body[param];
    if (value === undefined || value === null || isNoOp(value, body)) continue;
    throw unsupported(param, why);
  }
}

function checkCombinations(request: ChatCompletionRequest): void {
  const { max_tokens, max_completion_tokens, response_format } = request;
  if (request.top_logprobs != null && request.logprobs !== true) {
    throw invalid("top_logprobs", "it needs `logprobs: true`");
  }
  if (request.stream_options != null && request.stream !== true) {
    throw invalid("stream_options", "it needs `stream: true`");
  }
  const most = max_completion_tokens ?? max_tokens;
  if (request.min_tokens != null && most != null && request.min_tokens > most) {
    throw invalid("min_tokens", `it is more than the ${most} tokens that are allowed`);
  }
  if (max_tokens != null && max_completion_tokens != null && max_tokens !== max_completion_tokens) {
    throw invalid("max_tokens", "it differs from max_completion_tokens; give one of them");
  }
  if (response_format != null) checkFormat(response_format);
  checkTools(request);
}

/** An assistant's message may lack content only if it has tool calls or a refusal. */
function checkMessage(message: ChatRequestMessage, index: number): void {
  if (message.role !== "assistant") return;
  const { content, refusal, tool_calls } = message;
  if (content != null || refusal != null || (tool_calls && tool_calls.length > 0)) return;
  const param = `messages[${index}].content`;
  const text = `Missing required parameter: '${param}': an assistant's message needs content, a refusal or tool_calls.`;
  throw new AppError("missing_required_parameter", text, { param });
}

/** A tool's answer names the assistant's call that it answers. */
function checkToolAnswers(messages: readonly ChatRequestMessage[]): void {
  let asked = new Set<string>();
  messages.forEach((message, index) => {
    if (message.role === "assistant") {
      asked = new Set(message.tool_calls?.map(({ id }) => id));
    } else if (message.role === "tool" && !asked.has(message.tool_call_id)) {
      const why = "no call of the assistant's message before it has this id";
      throw invalid(`messages[${index}].tool_call_id`, why);
    }
  });
}

function unsupported(param: string, why: string): AppError {
  return new AppError("unsupported_parameter", `Unsupported value for '${param}': ${why}.`, {
    param,
  });
}

function isEmptyArray(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}

function isImplicitCache(value: unknown): boolean {
  const { mode } = Object(value) as Record<string, unknown>;
  return mode == null || mode === "implicit";
}

function isTextOnly(value: unknown): boolean {
  return Array.isArray(value) && value.length === 1 && value[0] === "text";
}

function never(): boolean {
  return false;
}

const tokenLogprob = z.object({
  token: z.string(),
  logprob: z.number(),
  bytes: z.array(z.int()).nullable(),
});

const logprobs = z
  .object({
    content: z
      .array(
        tokenLogprob
          .extend({ top_logprobs: z.array(tokenLogprob) })
          .meta({ id: "ChatCompletionTokenLogprob" }),
      )
      .nullable(),
    refusal: z.null(),
  })
  .nullable();

const finishReason = z.enum(["stop", "length", "tool_calls", "content_filter"]);
const reasoning = z.string().optional().describe("The reasoning of a model that shows it.");

/** Required by newer clients of OpenAI's API. */
export const cacheWriteTokens = z
  .int()
  .describe("Always 0: what a prompt adds to the prefix cache is neither charged nor counted.");

export const usageSchema = z
  .object({
    prompt_tokens: z.int(),
    completion_tokens: z.int(),
    total_tokens: z.int(),
    prompt_tokens_details: z.object({
      cached_tokens: z.int(),
      cache_write_tokens: cacheWriteTokens,
      audio_tokens: z.int(),
    }),
    completion_tokens_details: z.object({
      reasoning_tokens: z.int(),
      audio_tokens: z.int(),
      accepted_prediction_tokens: z.int(),
      rejected_prediction_tokens: z.int(),
    }),
  })
  .meta({ id: "CompletionUsage" });

const identity = {
  id: z.string(),
  created: z.int().describe("Seconds since the epoch."),
  model: z.string(),
  service_tier: answeredTier,
  system_fingerprint: z.string().describe("The deployment, and whether it is a stand-in."),
};

const chatCompletion = z
  .object({
    ...identity,
    object: z.literal("chat.completion"),
    choices: z.array(
      z.object({
        index: z.int(),
        message: z
          .object({
            role: z.literal("assistant"),
            content: z.string().nullable(),
            reasoning_content: reasoning,
            refusal: z.string().nullable(),
            tool_calls: z.array(toolCall).optional(),
          })
          .meta({ id: "ChatCompletionResponseMessage" }),
        logprobs,
        finish_reason: finishReason,
      }),
    ),
    usage: usageSchema,
  })
  .meta({ id: "CreateChatCompletionResponse" });

const chatCompletionChunk = z
  .object({
    ...identity,
    object: z.literal("chat.completion.chunk"),
    choices: z.array(
      z.object({
        index: z.int(),
        delta: z
          .object({
            role: z.literal("assistant").optional(),
            content: z.string().nullable().optional(),
            reasoning_content: reasoning,
            refusal: z.string().nullable().optional(),
            tool_calls: z
              .array(
                z.object({
                  index: z.int(),
                  id: z.string().optional().describe("Of a call's first piece."),
                  type: z.literal("function").optional(),
                  function: z.object({ name: z.string().optional(), arguments: z.string() }),
                }),
              )
              .optional(),
          })
          .meta({ id: "ChatCompletionStreamResponseDelta" }),
        logprobs,
        finish_reason: finishReason.nullable(),
      }),
    ),
    usage: usageSchema
      .nullable()
      .optional()
      .describe("With `stream_options.include_usage`: null, except in the last chunk."),
    obfuscation: z.string().optional().describe("Padding that hides the sizes of tokens."),
  })
  .meta({ id: "CreateChatCompletionStreamResponse" });

/** A piece of a streamed answer. */
export type ChatChunk = DataOf<typeof chatCompletionChunk>;

export const chatOperations = {
  stream: {
    operationId: "createChatCompletion",
    method: "POST",
    path: "/api/v1/chat/completions",
    permission: "inference:create",
    summary: "Creates a chat completion, whole or as a stream that ends with `[DONE]`.",
    headers: ["X-Heddle-Priority"],
    body: chatCompletionRequest,
    replies: {
      200: {
        ...json(chatCompletion),
        "text/event-stream": { message: chatCompletionChunk, error: errorResponse },
      },
    },
  },
} as const satisfies Record<string, ApiOperation>;
