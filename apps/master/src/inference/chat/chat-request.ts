import type { ChatCompletionRequest, ChatRequestMessage } from "@heddle/contracts/api/chat";
import type {
  ChatMessage,
  EngineInput,
  GenerateRequest,
  OutputFormat,
  SamplingOptions,
  ToolDefinition,
  ToolUse,
} from "@heddle/contracts/engine";

/** Converts an API request for the engine. `maxTokens` is per choice; absent: no limit. */
export function toGenerateRequest(
  request: ChatCompletionRequest,
  maxTokens: number | undefined,
): GenerateRequest {
  return {
    ...generationOf(request, maxTokens),
    input: toChatInput(request),
    reasoningTokens: request.thinking_token_budget ?? undefined,
    topLogprobs: request.logprobs === true ? (request.top_logprobs ?? 0) : undefined,
    format: formatOf(request.response_format),
    toolUse: toolUseOf(request),
  };
}

/** The prompt of a chat. */
export function toChatInput(
  request: Pick<ChatCompletionRequest, "messages" | "tools" | "tool_choice" | "reasoning_effort">,
): EngineInput {
  const messages = request.messages.map(toChatMessage);
  const effort = request.reasoning_effort ?? undefined;
  return { kind: "chat", messages, ...offeredTools(request), effort };
}

/** The fields by which chats and completions control how an answer is generated. */
export type GenerationFields = Pick<
  ChatCompletionRequest,
  | "temperature"
  | "top_p"
  | "top_k"
  | "min_p"
  | "repetition_penalty"
  | "presence_penalty"
  | "frequency_penalty"
  | "seed"
  | "logit_bias"
  | "n"
  | "min_tokens"
  | "ignore_eos"
  | "deterministic"
  | "stop"
>;

/** Their part of a request to an engine. */
export function generationOf(
  request: GenerationFields,
  maxTokens: number | undefined,
): Omit<GenerateRequest, "input" | "format"> {
  return {
    sampling: {
      temperature: request.temperature ?? 1,
      // The smallest mass keeps exactly the most likely token; 0 would keep none.
      topP: Math.max(request.top_p ?? 1, 1e-6),
      // In vLLM, -1 and 0 mean all tokens.
      topK: (request.top_k ?? 0) > 0 ? (request.top_k ?? undefined) : undefined,
      minP: request.min_p || undefined,
      repetitionPenalty: request.repetition_penalty ?? undefined,
      presencePenalty: request.presence_penalty ?? 0,
      frequencyPenalty: request.frequency_penalty ?? 0,
      seed: request.seed == null ? undefined : foldSeed(request.seed),
      logitBias: biasesOf(request.logit_bias),
    } satisfies Record<keyof SamplingOptions, unknown>,
    choices: request.n ?? 1,
    maxTokens,
    minTokens: request.min_tokens || undefined,
    ignoreEnd: request.ignore_eos || undefined,
    deterministic: request.deterministic ?? undefined,
    stop: stopsOf(request.stop),
  };
}

/** The tools that the prompt shows: none where none may be called. */
function offeredTools({
  tools,
  tool_choice,
}: Pick<ChatCompletionRequest, "tools" | "tool_choice">) {
  if (!tools?.length || tool_choice === "none") return {};
  return {
    tools: tools.map(
      ({ function: { name, description, parameters } }): ToolDefinition => ({
        name,
        ...(description && { description }),
        parameters: JSON.stringify(parameters ?? NO_ARGUMENTS),
      }),
    ),
  };
}

/** The parameters of a function that declares none. */
const NO_ARGUMENTS = { type: "object", additionalProperties: false };

function toolUseOf(request: ChatCompletionRequest): ToolUse | undefined {
  const { tools } = offeredTools(request);
  if (tools === undefined) return undefined;
  const { tool_choice: choice, parallel_tool_calls: parallel } = request;
  const use = { names: tools.map(({ name }) => name), parallel: parallel !== false };
  if (choice === "required") return { ...use, choice };
  if (choice == null || typeof choice === "string") return { ...use, choice: "auto" };
  if ("allowed_tools" in choice) {
    const { mode, tools: allowed } = choice.allowed_tools as AllowedTools;
    return { ...use, choice: mode, names: allowed.map(({ function: { name } }) => name) };
  }
  const { name } = choice.function as { readonly name: string };
  return { choice: "required", names: [name], parallel: false };
}

interface AllowedTools {
  readonly mode: ToolUse["choice"];
  readonly tools: readonly { readonly function: { readonly name: string } }[];
}

function formatOf(format: ChatCompletionRequest["response_format"]): OutputFormat {
  const isObject = format?.type === "json_object";
  if (isObject && format.schema == null) return "json_object";
  if (!isObject && format?.type !== "json_schema") return "text";
  const schema = (isObject ? format.schema : format.json_schema?.schema) ?? { type: "object" };
  return { kind: "json_schema", schema: JSON.stringify(schema) };
}

/**
 * An upper estimate of the prompt's tokens before tokenization: one per three bytes of text, and
 * some per message for the template. The engine's count replaces it.
 */
export function estimatePromptTokens(request: ChatCompletionRequest): number {
  let tokens = 16;
  for (const message of request.messages) {
    const { content, name = "", toolCalls } = toChatMessage(message);
    const calls = toolCalls?.length ? JSON.stringify(toolCalls) : "";
    tokens += 8 + Math.ceil(Buffer.byteLength(`${name}${content ?? ""}${calls}`) / 3);
  }
  for (const { name, description = "", parameters } of offeredTools(request).tools ?? []) {
    tokens += 16 + Math.ceil(Buffer.byteLength(`${name}${description}${parameters}`) / 3);
  }
  return tokens;
}

function toChatMessage(message: ChatRequestMessage): ChatMessage {
  switch (message.role) {
    case "assistant":
      return {
        role: message.role,
        content: withRefusal(joinParts(message.content ?? null), message.refusal),
        name: message.name,
        toolCalls: message.tool_calls,
      };
    case "tool":
      return {
        role: message.role,
        content: joinParts(message.content),
        toolCallId: message.tool_call_id,
      };
    default:
      return { role: message.role, content: joinParts(message.content), name: message.name };
  }
}

/** A model's refusal counts as part of its message. */
function withRefusal(content: string | null, refusal: string | null | undefined): string | null {
  if (refusal == null) return content;
  return content ? `${content}\n${refusal}` : refusal;
}

type Part = { type: "text"; text: string } | { type: "refusal"; refusal: string };

/** Parts are joined by line breaks, as in llama.cpp and vLLM. */
function joinParts(content: string | readonly Part[]): string;
function joinParts(content: string | readonly Part[] | null): string | null;
function joinParts(content: string | readonly Part[] | null): string | null {
  if (content === null || typeof content === "string") return content;
  return content.map((part) => (part.type === "text" ? part.text : part.refusal)).join("\n");
}

/**
 * Maps the API's 64-bit seeds to the engine's 32 bits by mixing in the upper half. Equal seeds stay
 * equal; 32-bit seeds are unchanged.
 */
function foldSeed(seed: number): number {
  const lower = ((seed % 2 ** 32) + 2 ** 32) % 2 ** 32;
  const upper = Math.floor(Math.abs(seed) / 2 ** 32);
  return (lower ^ upper) >>> 0;
}

function biasesOf(
  biases: Record<string, number> | null | undefined,
): GenerateRequest["sampling"]["logitBias"] {
  if (!biases) return [];
  return Object.entries(biases).map(([token, bias]) => ({ token: Number(token), bias }));
}

function stopsOf(stop: string | readonly string[] | null | undefined): readonly string[] {
  if (stop == null) return [];
  return typeof stop === "string" ? [stop] : stop;
}
