import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import { directCallers, longFunctionName, schemaName } from "../../chat-constraints.ts";
import { REASONING_EFFORTS } from "../../engine.ts";
import { validate } from "../../validation.ts";
import { chatCompletionRequest, refuseUnsupported } from "../chat.ts";
import { type GivenItem, givenItem, ITEM_TYPES, PART_TYPES } from "./items.ts";

const MAX_ITEMS = 4096;
const MAX_TOOLS = 128;
const MAX_SHOWN_CHARS = 64;
export const TOOL_CHOICES = ["none", "auto", "required"] as const;

const ONLY_FUNCTIONS = "only function tools are supported";

const functionTool = z.object({
  type: z.literal("function", ONLY_FUNCTIONS),
  name: longFunctionName,
  description: z.string().nullish(),
  parameters: z.looseObject({}).nullish().describe("A JSON schema; without it no arguments."),
  strict: z.boolean().nullish().describe("Arguments are valid for the schema in any case."),
  defer_loading: z.literal(false, "tools are never left out of the prompt").nullish(),
  allowed_callers: directCallers,
});

const namedTool = z.object({ type: z.literal("function", ONLY_FUNCTIONS), name: longFunctionName });
const toolChoice = z.union([
  z.enum(TOOL_CHOICES),
  namedTool,
  z.object({
    type: z.literal("allowed_tools"),
    mode: z.enum(["auto", "required"]),
    tools: z.array(namedTool).min(1).max(MAX_TOOLS),
  }),
]);

const textFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object") }),
  z.object({
    type: z.literal("json_schema"),
    name: schemaName,
    description: z.string().nullish(),
    schema: z.looseObject({}).describe("A JSON schema."),
    strict: z.boolean().nullish(),
  }),
]);

const INCLUDABLE = [
  "file_search_call.results",
  "web_search_call.results",
  "web_search_call.action.sources",
  "message.input_image.image_url",
  "computer_call_output.output.image_url",
  "code_interpreter_call.outputs",
  "reasoning.encrypted_content",
  "message.output_text.logprobs",
] as const;
const include = z.array(z.enum(INCLUDABLE)).max(INCLUDABLE.length);

/** What a prompt is made of: also what `POST /responses/input_tokens` counts. */
const promptFields = {
  model: z.string().min(1).max(200).describe("An id of `GET /models`."),
  input: z
    .union([z.string(), z.array(givenItem).min(1).max(MAX_ITEMS)])
    .nullish()
    .describe("A text, or items: messages, calls of functions and their outputs, reasoning."),
  instructions: z.string().nullish().describe("A system message; a chain does not inherit it."),
  previous_response_id: z.string().max(128).nullish().describe("The response to continue from."),
  conversation: z
    .union([z.string().max(128), z.object({ id: z.string().max(128) })])
    .nullish()
    .describe("Its items come first; input and output are added to it."),
  tools: z.array(functionTool).max(MAX_TOOLS).nullish().describe("Functions alone."),
  tool_choice: toolChoice.nullish().describe("`auto` with tools if absent."),
  parallel_tool_calls: z.boolean().nullish().describe("True if absent."),
  text: z
    .object({ format: textFormat.nullish(), verbosity: z.string().nullish() })
    .nullish()
    .describe("`format`: `text`, `json_object` or `json_schema`."),
  reasoning: z
    .object({
      effort: z.enum(REASONING_EFFORTS).nullish(),
      summary: z.string().nullish(),
      generate_summary: z.string().nullish(),
      mode: z.string().nullish(),
      context: z.string().nullish(),
    })
    .nullish()
    .describe("`effort`, of a model that reasons; reasoning is an item with its content."),
  truncation: z
    .enum(["auto", "disabled"])
    .nullish()
    .describe(
      "`auto` leaves out the oldest items of an input that is too long; a count is of all.",
    ),
};

export const responseRequest = z
  .object({
    ...promptFields,
    ...chatCompletionRequest.pick({
      temperature: true,
      top_p: true,
      stream: true,
      metadata: true,
      user: true,
      safety_identifier: true,
      prompt_cache_key: true,
      top_logprobs: true,
      // Extensions, as for chats.
      seed: true,
      stop: true,
      presence_penalty: true,
      frequency_penalty: true,
      logit_bias: true,
      top_k: true,
      min_p: true,
      repetition_penalty: true,
      min_tokens: true,
      ignore_eos: true,
      deterministic: true,
      thinking_token_budget: true,
      priority: true,
      service_tier: true,
    }).shape,
    top_logprobs: z
      .int()
      .min(0)
      .max(20)
      .nullish()
      .describe("Needs `include` with `message.output_text.logprobs`."),
    max_output_tokens: z.int().min(1).nullish().describe("Reasoning included."),
    max_tool_calls: z
      .int()
      .min(1)
      .nullish()
      .describe("Of built-in tools, of which there are none."),
    store: z.boolean().nullish().describe("True if absent: it is kept for later calls."),
    background: z.boolean().nullish().describe("Answers at once; the response continues alone."),
    include: include.nullish().describe("`message.output_text.logprobs` adds scores."),
    stream_options: z.object({ include_obfuscation: z.boolean().nullish() }).nullish(),
  })
  .meta({ id: "CreateResponse" });

export type ResponseRequest = z.infer<typeof responseRequest>;

export const tokenCountRequest = z.object(promptFields).meta({ id: "CountResponseTokens" });
export type TokenCountRequest = z.infer<typeof tokenCountRequest>;

/** Parts of a request that are refused unless their value is the actual behaviour. */
const REFUSED: readonly (readonly [
  param: string,
  isNoOp: (value: unknown) => boolean,
  why: string,
])[] = [
  ["reasoning.summary", is("auto"), "reasoning is shown whole, without a summary"],
  ["reasoning.generate_summary", is("auto"), "reasoning is shown whole, without a summary"],
  ["reasoning.mode", is("standard"), "there is one mode"],
  ["reasoning.context", is("auto", "current_turn"), "earlier reasoning is not shown again"],
  ["text.verbosity", is("medium"), "the verbosity cannot be chosen"],
  ["prompt", is(undefined), "stored prompts are not supported; send their text"],
  ["context_management", is(undefined), "contexts are not compacted"],
];

/** Parses a body; throws an AppError that names the first fault in `param`. */
export function parseResponseRequest(body: unknown): ResponseRequest {
  checkTypes(body);
  const request = validate(responseRequest, body);
  refuse(body as Record<string, unknown>);
  checkCombinations(request);
  return request;
}

/** Parses the body of a count of tokens. */
export function parseTokenCountRequest(body: unknown): TokenCountRequest {
  checkTypes(body);
  const request = validate(tokenCountRequest, body);
  refuse(body as Record<string, unknown>);
  checkInput(request);
  return request;
}

/** Before the unions, whose faults would be those of other branches. */
function checkTypes(body: unknown): void {
  const { tools, tool_choice, input } = Object(body) as Record<string, unknown>;
  listOf(tools).forEach((tool, at) => {
    checkType(tool, `tools[${at}]`, ["function"], "tools");
  });
  checkType(tool_choice, "tool_choice", ["function", "allowed_tools"], "choices");
  checkItemTypes(input, "input");
}

/** Throws for items and parts, as images, that no served model takes. */
export function checkItemTypes(items: unknown, param: string): void {
  listOf(items).forEach((item, at) => {
    checkType(item, `${param}[${at}]`, ITEM_TYPES, "items");
    for (const field of ["content", "output"]) {
      const types = item["type"] === "reasoning" ? ["reasoning_text"] : PART_TYPES;
      listOf(item[field]).forEach((part, index) => {
        checkType(part, `${param}[${at}].${field}[${index}]`, types, "parts");
      });
    }
  });
}

function listOf(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.map((each: unknown) => Object(each)) : [];
}

function checkType(value: unknown, param: string, types: readonly string[], what: string): void {
  const type: unknown = Object(value).type;
  if (typeof type !== "string" || types.includes(type)) return;
  const shown = JSON.stringify(type.slice(0, MAX_SHOWN_CHARS));
  const why = `${what} of the type ${shown} are not supported, only ${types.join(", ")}`;
  throw unsupported(`${param}.type`, why);
}

function refuse(body: Record<string, unknown>): void {
  // Chats store nothing, and have the effort and the verbosity elsewhere.
  refuseUnsupported({ ...body, store: undefined });
  for (const [param, isNoOp, why] of REFUSED) {
    const value = param.split(".").reduce<unknown>((at, step) => Object(at)[step], body);
    if (value !== undefined && value !== null && !isNoOp(value)) throw unsupported(param, why);
  }
}

function checkCombinations(request: ResponseRequest): void {
  checkInput(request);
  const { include: included, top_logprobs, background, store, stream, stream_options } = request;
  if (included?.includes("reasoning.encrypted_content")) {
    throw unsupported("include", "reasoning is not encrypted; it is an item with its content");
  }
  if (top_logprobs != null && !included?.includes("message.output_text.logprobs")) {
    throw invalid("top_logprobs", "it needs `message.output_text.logprobs` in `include`");
  }
  if (background && store === false) {
    throw invalid("background", "it needs `store: true`, so that the response can be fetched");
  }
  if (stream_options != null && stream !== true) {
    throw invalid("stream_options", "it needs `stream: true`");
  }
  const { min_tokens: least, max_output_tokens: most } = request;
  if (least != null && most != null && least > most) {
    throw invalid("min_tokens", `it is more than the ${most} tokens that are allowed`);
  }
}

function checkInput({ input, previous_response_id: previous, conversation }: TokenCountRequest) {
  if (previous != null && conversation != null) {
    throw invalid("previous_response_id", "it cannot be given with `conversation`");
  }
  if (input != null || previous != null || conversation != null) return;
  const message = "Missing required parameter: 'input'.";
  throw new AppError("missing_required_parameter", message, { param: "input" });
}

/** The items of an input; a text is a message of the user. */
export function itemsOf(input: ResponseRequest["input"]): readonly GivenItem[] {
  if (typeof input === "string") return [{ role: "user", content: input }];
  return input ?? [];
}

function is(...noOps: unknown[]): (value: unknown) => boolean {
  return (value) => noOps.includes(value);
}

function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}

function unsupported(param: string, why: string): AppError {
  const message = `Unsupported value for '${param}': ${why}.`;
  return new AppError("unsupported_parameter", message, { param });
}
