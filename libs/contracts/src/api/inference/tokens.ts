import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { invalid } from "../../chat-constraints.ts";
import { validate } from "../../validation.ts";
import { chatCompletionRequest, parseChatCompletionRequest } from "../chat.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { checkTokenIds, MAX_TOKEN } from "./token-lists.ts";

/** UTF-8 of a text, or of all that a chat says: a second of one thread's time. */
const MAX_TEXT_BYTES = 512 * 1024;
/** The most items of a body. */
const MAX_TOKENS = 65_536;

const { model, messages, tools } = chatCompletionRequest.shape;
const chat = { messages, tools };
const generationPrompt = z
  .literal(true, "the prompt always ends where the answer begins")
  .nullish();

const tokenizeRequest = z
  .object({
    model,
    prompt: z.string().nullish().describe("A text; or give `messages`."),
    messages: messages.nullish(),
    tools,
    add_generation_prompt: generationPrompt,
    add_special_tokens: z
      .boolean()
      .nullish()
      .describe("Of a text: whether the vocabulary's own begin and end are added; true if absent."),
    return_token_strs: z.boolean().nullish(),
  })
  .meta({ id: "TokenizeRequest" });

const detokenizeRequest = z
  .object({ model, tokens: z.array(z.int().min(0).max(MAX_TOKEN)).max(MAX_TOKENS) })
  .meta({ id: "DetokenizeRequest" });

const applyTemplateRequest = z
  .object({ model, ...chat, add_generation_prompt: generationPrompt })
  .meta({ id: "ApplyTemplateRequest" });

export type TokenizeRequest = z.infer<typeof tokenizeRequest>;
export type DetokenizeRequest = z.infer<typeof detokenizeRequest>;
export type ApplyTemplateRequest = z.infer<typeof applyTemplateRequest>;

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseTokenizeRequest(body: unknown): TokenizeRequest {
  const request = validate(tokenizeRequest, body);
  const { prompt, messages: given, add_special_tokens: added } = request;
  if (given != null) {
    if (prompt != null) throw invalid("prompt", "there are messages too; give one of them");
    if (added != null) throw invalid("add_special_tokens", "of messages the template decides");
    checkChat(request);
  } else if (prompt == null) {
    const message = "Missing required parameter: 'prompt': give it, or messages.";
    throw new AppError("missing_required_parameter", message, { param: "prompt" });
  } else checkSize("prompt", prompt);
  return request;
}

export function parseDetokenizeRequest(body: unknown): DetokenizeRequest {
  const tokens: unknown = Object(body).tokens;
  if (Array.isArray(tokens)) checkTokenIds("tokens", tokens);
  return validate(detokenizeRequest, body);
}

export function parseApplyTemplateRequest(body: unknown): ApplyTemplateRequest {
  const request = validate(applyTemplateRequest, body);
  checkChat(request);
  return request;
}

/** What a chat completion checks of it, and its size. */
function checkChat({ model: id, messages: given, tools: offered }: TokenizeRequest): void {
  parseChatCompletionRequest({ model: id, messages: given, tools: offered });
  checkSize("messages", JSON.stringify([given, offered]));
}

function checkSize(param: string, text: string): void {
  const bytes = new TextEncoder().encode(text).length;
  if (bytes <= MAX_TEXT_BYTES) return;
  throw invalid(param, `it has ${bytes} bytes, and at most ${MAX_TEXT_BYTES} are read in one call`);
}

const tokenized = z
  .object({
    count: z.int(),
    max_model_len: z.int().describe("The tokens of the model's context."),
    tokens: z.array(z.int()),
    token_strs: z.array(z.string()).nullable().describe("With `return_token_strs`."),
  })
  .meta({ id: "TokenizeResponse" });
const prompt = z.object({ prompt: z.string() }).meta({ id: "PromptResponse" });

export type Tokenized = DataOf<typeof tokenized>;
export type ShownPrompt = DataOf<typeof prompt>;

/** Tokens as vLLM's API has them, templates as llama-server's. */
export const tokenOperations = {
  tokenize: {
    operationId: "tokenize",
    method: "POST",
    path: "/api/v1/tokenize",
    permission: "inference:create",
    summary: "Gives the tokens that the model reads of a text or a chat.",
    body: tokenizeRequest,
    replies: { 200: json(tokenized) },
  },
  detokenize: {
    operationId: "detokenize",
    method: "POST",
    path: "/api/v1/detokenize",
    permission: "inference:create",
    summary: "Gives the text that tokens of the model spell.",
    body: detokenizeRequest,
    replies: { 200: json(prompt) },
  },
  applyTemplate: {
    operationId: "applyTemplate",
    method: "POST",
    path: "/api/v1/apply-template",
    permission: "inference:create",
    summary: "Gives the prompt that the model's chat template makes of a chat.",
    body: applyTemplateRequest,
    replies: { 200: json(prompt) },
  },
} as const satisfies Record<string, ApiOperation>;
