import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { validate } from "../validation.ts";
import { chatCompletionRequest, refuseUnsupported, usageSchema } from "./chat.ts";
import { errorResponse } from "./errors.ts";
import { checkTokenIds, MAX_TOKEN } from "./inference/token-lists.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";

/** Prompts of one request, and its choices over all of them. */
const MAX_PROMPTS = 128;
const MAX_CHOICES = 128;
const MAX_LOGPROBS = 5;
const MAX_BEST_OF = 20;

const text = z.string().min(1, "expected some text");
const tokens = z.array(z.int().min(0).max(MAX_TOKEN)).min(1, "expected at least one token");

const completionRequest = chatCompletionRequest
  .pick({
    model: true,
    temperature: true,
    top_p: true,
    n: true,
    stop: true,
    seed: true,
    presence_penalty: true,
    frequency_penalty: true,
    logit_bias: true,
    stream: true,
    stream_options: true,
    user: true,
    top_k: true,
    min_p: true,
    repetition_penalty: true,
    min_tokens: true,
    ignore_eos: true,
    deterministic: true,
    priority: true,
    service_tier: true,
  })
  .extend({
    prompt: z
      .union([
        text,
        z.array(text).min(1, "expected at least one prompt").max(MAX_PROMPTS),
        tokens,
        z.array(tokens).min(1).max(MAX_PROMPTS),
      ])
      .describe("A text, texts, the token ids of a text, or those of several. No chat template."),
    max_tokens: z.int().min(0).nullish().describe("Of each choice; 16 if absent."),
    logprobs: z
      .int()
      .min(0)
      .max(MAX_LOGPROBS)
      .nullish()
      .describe("Alternatives of each token, beside it."),
    echo: z.boolean().nullish().describe("The prompt comes first, with its `logprobs` too."),
    best_of: z
      .int()
      .min(1)
      .max(MAX_BEST_OF)
      .nullish()
      .describe("Choices of which the `n` most likely per token are sent; not with `stream`."),
    suffix: z
      .string()
      .nullish()
      .describe("What follows the answer, of a model that fills in the middle."),
  })
  .meta({ id: "CreateCompletionRequest" });

export type CompletionRequest = z.infer<typeof completionRequest>;

const logprobs = z
  .object({
    tokens: z.array(z.string()),
    token_logprobs: z.array(z.number().nullable()).describe("Null of a prompt's first token."),
    top_logprobs: z.array(z.record(z.string(), z.number()).nullable()).nullable(),
    text_offset: z.array(z.int()).describe("Where each token begins in the choice's text."),
  })
  .nullable();

const answer = {
  id: z.string(),
  object: z.literal("text_completion"),
  created: z.int().describe("Seconds since the epoch."),
  model: z.string(),
  system_fingerprint: z.string(),
};
const choice = { index: z.int(), text: z.string(), logprobs };
const reason = z.enum(["stop", "length", "content_filter"]);

const completion = z
  .object({
    ...answer,
    choices: z.array(z.object({ ...choice, finish_reason: reason })),
    usage: usageSchema,
  })
  .meta({ id: "CreateCompletionResponse" });

const asyncCompletion = z
  .object({
    ...answer,
    status: z.enum(["in_progress", "completed", "failed", "cancelled"]),
    choices: completion.shape.choices.describe("Empty until it is completed."),
    usage: usageSchema.nullable(),
    error: z
      .object({ code: z.string(), message: z.string(), param: z.string().nullable() })
      .nullable(),
    expires_at: z.int().describe("When it is deleted, in seconds since the epoch."),
  })
  .meta({ id: "AsyncCompletion", description: "A completion that is polled." });

/** A completion that runs without its client. */
export type AsyncCompletion = DataOf<typeof asyncCompletion>;

const completionChunk = z
  .object({
    ...answer,
    choices: z.array(z.object({ ...choice, finish_reason: reason.nullable() })),
    usage: usageSchema.nullable().optional(),
  })
  .meta({ id: "CreateCompletionStreamResponse" });

/** A whole answer. */
export type CompletionAnswer = DataOf<typeof completion>;

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseCompletionRequest(body: unknown): CompletionRequest {
  checkPrompts(Object(body).prompt);
  const request = validate(completionRequest, body);
  const { best_of: _, ...raw } = body as Record<string, unknown>;
  refuseUnsupported(raw);
  if (raw["response_format"] != null) {
    throw unsupported("response_format", "it is for chat completions");
  }
  checkCombinations(request);
  return request;
}

function checkCombinations(request: CompletionRequest): void {
  const { prompt, n, echo, suffix, best_of: candidates, stream, stream_options: options } = request;
  if (echo && suffix)
    throw unsupported("echo", "what fills a gap comes without the text around it");
  if (candidates != null && candidates < (n ?? 1)) {
    throw invalid("best_of", `it is less than the ${n} choices of \`n\``);
  }
  if (candidates != null && candidates > (n ?? 1) && stream === true) {
    throw unsupported("best_of", "the best are known at the end, which a stream does not wait for");
  }
  if (options != null && stream !== true) {
    throw invalid("stream_options", "it needs `stream: true`");
  }
  const most = request.max_tokens ?? DEFAULT_MAX_TOKENS;
  if (request.min_tokens != null && request.min_tokens > most) {
    throw invalid("min_tokens", `it is more than the ${most} tokens that are allowed`);
  }
  const isList = Array.isArray(prompt) && typeof prompt[0] !== "number";
  const choices = (candidates ?? n ?? 1) * (isList ? prompt.length : 1);
  if (choices <= MAX_CHOICES) return;
  throw invalid(
    candidates == null ? "n" : "best_of",
    `at most ${MAX_CHOICES} choices over all prompts are allowed, not ${choices}`,
  );
}

/** OpenAI's. */
export const DEFAULT_MAX_TOKENS = 16;

/** Checked before the union, whose fault would be that of another form. */
function checkPrompts(prompt: unknown): void {
  if (!Array.isArray(prompt)) return;
  if (typeof prompt[0] === "number" || prompt.length <= MAX_PROMPTS) {
    checkTokenIds("prompt", prompt);
    return;
  }
  throw invalid("prompt", `at most ${MAX_PROMPTS} prompts are allowed, got ${prompt.length}`);
}

function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}

function unsupported(param: string, why: string): AppError {
  const message = `Unsupported value for '${param}': ${why}.`;
  return new AppError("unsupported_parameter", message, { param });
}

export const completionOperations = {
  create: {
    operationId: "createCompletion",
    method: "POST",
    path: "/api/v1/completions",
    permission: "inference:create",
    summary:
      "Continues texts as they are: at once, as a stream that ends with `[DONE]`, or with `Prefer: respond-async` polled.",
    headers: ["Idempotency-Key", "Prefer", "X-Heddle-Priority"],
    body: completionRequest,
    replies: {
      200: {
        ...json(completion),
        "text/event-stream": { message: completionChunk, error: errorResponse },
      },
      202: json(asyncCompletion),
    },
  },
  retrieve: {
    operationId: "getCompletion",
    method: "GET",
    path: "/api/v1/completions/{id}",
    permission: "inference:create",
    summary: "Returns a completion of `Prefer: respond-async`; the status is 202 while it runs.",
    replies: { 200: json(asyncCompletion), 202: json(asyncCompletion) },
  },
  cancel: {
    operationId: "cancelCompletion",
    method: "DELETE",
    path: "/api/v1/completions/{id}",
    permission: "inference:create",
    summary: "Cancels a completion that runs, and deletes one that has ended.",
    replies: { 200: json(asyncCompletion) },
  },
} as const satisfies Record<string, ApiOperation>;
