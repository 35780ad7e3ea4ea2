import { AppError, isErrorCode } from "@heddle/base/errors";
import type {
  ChatMessage,
  EmbedRequest,
  EngineEvent,
  EngineFailure,
  EngineInput,
  EngineRequest,
  FinishReason,
  GenerateRequest,
  InputReading,
  OutputFormat,
  PlainInput,
  ReadRequest,
  SamplingOptions,
  TokenLogprob,
  ToolUse,
  Usage,
} from "@heddle/contracts/engine";
import { REASONING_EFFORTS, type ReasoningEffort } from "@heddle/contracts/engine";
import type { ChatInput__Output } from "@heddle/contracts/generated/heddle/v1/ChatInput";
import type {
  ChatMessage as WireMessage,
  ChatMessage__Output as WireMessageOut,
} from "@heddle/contracts/generated/heddle/v1/ChatMessage";
import type { EmbedInput } from "@heddle/contracts/generated/heddle/v1/EmbedInput";
import type { Failure__Output } from "@heddle/contracts/generated/heddle/v1/Failure";
import type {
  GenerateRequest__Output,
  GenerateRequest as WireRequest,
} from "@heddle/contracts/generated/heddle/v1/GenerateRequest";
import type {
  InferenceEvent,
  InferenceEvent__Output,
} from "@heddle/contracts/generated/heddle/v1/InferenceEvent";
import type { Reading__Output } from "@heddle/contracts/generated/heddle/v1/Reading";
import type { ReadRequest__Output } from "@heddle/contracts/generated/heddle/v1/ReadRequest";
import type { Start, Start__Output } from "@heddle/contracts/generated/heddle/v1/Start";
import type {
  TokenLogprob__Output,
  TokenLogprob as WireLogprob,
} from "@heddle/contracts/generated/heddle/v1/TokenLogprob";
import type { Usage__Output } from "@heddle/contracts/generated/heddle/v1/Usage";
import { decodeWeights, encodeWeights } from "./node-codec.ts";

/**
 * Converts requests and events between their contract (libs/contracts/src/engine.ts) and their
 * messages (proto/worker.proto). decode(encode(x)) equals x, except that an empty list of
 * log-probabilities or tool calls and an empty `param` become absent.
 */
export function encodeEvent(event: EngineEvent): InferenceEvent {
  switch (event.type) {
    case "started": {
      const { promptTokens, cachedTokens, queuedMs } = event;
      return { id: event.id, started: { promptTokens, cachedTokens, queuedMs } };
    }
    case "delta": {
      const { choice, text, tokens, tokenIds = [], logprobs: scores = [], isCut } = event;
      const logprobs = scores.map(encodeLogprob);
      const ids = tokenIds as number[];
      return { id: event.id, delta: { choice, text, tokens, tokenIds: ids, logprobs, cut: isCut } };
    }
    case "prompt": {
      const { id, text, logprobs = [] } = event;
      return { id, prompt: { text, logprobs: logprobs.map(encodeLogprob) } };
    }
    case "finish":
      return {
        id: event.id,
        finish: { choice: event.choice, reason: event.reason, stop: event.stop },
      };
    case "embedding":
      return { id: event.id, embedding: { input: event.input, values: bytesOf(event.values) } };
    case "reading": {
      const { id, count, tokens = [], pieces = [], text } = event;
      return { id, reading: { count, tokens: [...tokens], pieces: [...pieces], text } };
    }
    case "done":
      return { id: event.id, done: event.usage };
    case "failed":
      return { id: event.id, failed: event.error };
    default:
      event satisfies never;
      throw new TypeError("an event has no known type");
  }
}

/** Throws an AppError `server_error` on a message that this version does not encode. */
export function decodeEvent(message: InferenceEvent__Output): EngineEvent {
  const { id, started, prompt, delta, finish, embedding, reading, done, failed } = message;
  if (delta) {
    const { choice, text, tokens, tokenIds, cut } = delta;
    // Nearly all of them, and spreads would take most of the time.
    if (tokenIds.length > 0 && !cut && delta.logprobs.length === 0) {
      return { type: "delta", id, choice, text, tokens, tokenIds };
    }
    const logprobs = delta.logprobs.length > 0 ? delta.logprobs.map(decodeLogprob) : undefined;
    return {
      type: "delta",
      id,
      choice,
      text,
      tokens,
      ...(tokenIds.length > 0 && { tokenIds }),
      ...(cut && { isCut: true }),
      ...(logprobs && { logprobs }),
    };
  }
  if (started) {
    const { promptTokens, cachedTokens, queuedMs } = started;
    return { type: "started", id, promptTokens, cachedTokens, queuedMs };
  }
  if (prompt) {
    const { text } = prompt;
    const logprobs = prompt.logprobs.map(decodeLogprob);
    return { type: "prompt", id, text, ...(logprobs.length > 0 && { logprobs }) };
  }
  if (finish) {
    const { choice, reason, stop } = finish;
    const read = { type: "finish", id, choice, reason: finishReason(reason) } as const;
    return stop === undefined ? read : { ...read, stop };
  }
  if (embedding) {
    return { type: "embedding", id, input: embedding.input, values: floatsOf(embedding.values) };
  }
  if (reading) return { type: "reading", id, ...decodeReading(reading) };
  if (done) return { type: "done", id, usage: decodeUsage(done) };
  if (failed) return { type: "failed", id, error: decodeFailure(failed) };
  throw unknown("event", "none of its members is set");
}

/** The work of a `Start`. */
export function encodeWork(request: EngineRequest): Pick<Start, "request" | "embed" | "read"> {
  if (request.kind === "read") {
    const { input, give, isBare } = request;
    return { read: { ...encodeInput(input), give, bare: isBare } };
  }
  if (request.kind !== "embed") return { request: encodeRequest(request) };
  return { embed: { inputs: request.inputs.map(encodeEmbedInput) } };
}

/** Throws an AppError `server_error` on a message that this version does not encode. */
export function decodeWork({
  request,
  embed,
  read,
}: Pick<Start__Output, "request" | "embed" | "read">): EngineRequest {
  if (request) return decodeRequest(request);
  if (read) return decodeRead(read);
  if (!embed) throw unknown("request", "none of its members is set");
  const inputs = embed.inputs.map((input): EmbedRequest["inputs"][number] => {
    if (input.pair) return { kind: "pair", ...input.pair };
    if (input.text !== undefined) return { kind: "text", text: input.text };
    return { kind: "tokens", tokens: input.tokens?.tokens ?? [] };
  });
  return { kind: "embed", inputs } satisfies EmbedRequest;
}

function decodeRead(message: ReadRequest__Output): ReadRequest {
  const { give, bare } = message;
  if (give !== "count" && give !== "tokens" && give !== "pieces" && give !== "text") {
    throw unknown("kind of reading", give);
  }
  return { kind: "read", input: decodeInput(message), give, ...(bare && { isBare: true }) };
}

/** An empty list is as good as none. */
function decodeReading({ count, tokens, pieces, text }: Reading__Output): InputReading {
  return {
    count,
    ...(tokens.length > 0 && { tokens: Int32Array.from(tokens) }),
    ...(pieces.length > 0 && { pieces }),
    ...(text !== undefined && { text }),
  };
}

function encodeRequest(request: GenerateRequest): WireRequest {
  const { input } = request;
  const sameNames = {
    echo: request.echo,
    reasoningTokens: request.reasoningTokens,
    choices: request.choices,
    maxTokens: request.maxTokens,
    stop: [...request.stop],
    topLogprobs: request.topLogprobs,
    minTokens: request.minTokens,
    ignoreEnd: request.ignoreEnd,
    deterministic: request.deterministic,
    adapter: request.adapter && {
      weights: encodeWeights(request.adapter.weights),
      scale: request.adapter.scale,
    },
    sent: request.sent?.map(({ tokens, characters, isFinished, isCut }) => {
      return { tokens: [...tokens], characters, finished: isFinished, cut: isCut };
    }),
  } satisfies Record<Exclude<keyof GenerateRequest, ConvertedField>, unknown>;
  return {
    ...encodeInput(input),
    ...(input.kind !== "chat" && { suffix: input.suffix }),
    ...encodeFormat(request.format),
    ...encodeToolUse(request.toolUse),
    ...encodeSampling(request.sampling),
    ...sameNames,
  };
}

/** Fields that have functions of their own. */
type ConvertedField = "kind" | "input" | "sampling" | "format" | "toolUse";

function encodeSampling(sampling: SamplingOptions) {
  return {
    temperature: sampling.temperature,
    topP: sampling.topP,
    topK: sampling.topK,
    minP: sampling.minP,
    repetitionPenalty: sampling.repetitionPenalty,
    presencePenalty: sampling.presencePenalty,
    frequencyPenalty: sampling.frequencyPenalty,
    seed: sampling.seed,
    logitBias: [...sampling.logitBias],
  } satisfies Record<keyof SamplingOptions, unknown>;
}

function decodeRequest(message: GenerateRequest__Output): GenerateRequest {
  const toolUse = decodeToolUse(message);
  const input = decodeInput(message);
  const { suffix } = message;
  return {
    input: suffix === undefined || input.kind === "chat" ? input : { ...input, suffix },
    sampling: {
      temperature: message.temperature,
      topP: message.topP,
      presencePenalty: message.presencePenalty,
      frequencyPenalty: message.frequencyPenalty,
      logitBias: message.logitBias.map(({ token, bias }) => ({ token, bias })),
      ...(message.seed !== undefined && { seed: message.seed }),
      ...(message.topK > 0 && { topK: message.topK }),
      ...(message.minP > 0 && { minP: message.minP }),
      ...(message.repetitionPenalty > 0 && { repetitionPenalty: message.repetitionPenalty }),
    },
    choices: message.choices,
    stop: message.stop,
    format: decodeFormat(message),
    ...(message.maxTokens !== undefined && { maxTokens: message.maxTokens }),
    ...(message.minTokens > 0 && { minTokens: message.minTokens }),
    ...(message.ignoreEnd && { ignoreEnd: true }),
    ...(message.deterministic !== undefined && { deterministic: message.deterministic }),
    ...(message.topLogprobs !== undefined && { topLogprobs: message.topLogprobs }),
    ...(message.reasoningTokens !== undefined && { reasoningTokens: message.reasoningTokens }),
    ...(message.echo && { echo: true }),
    ...(toolUse && { toolUse }),
    ...(message.adapter && {
      adapter: {
        weights: decodeWeights(message.adapter.weights),
        scale: message.adapter.scale,
      },
    }),
    ...(message.sent.length > 0 && {
      sent: message.sent.map(({ tokens, characters, finished, cut }) => {
        return { tokens, characters, isFinished: finished, ...(cut && { isCut: true }) };
      }),
    }),
  };
}

function encodeFormat(format: OutputFormat): Pick<WireRequest, "format" | "schema"> {
  if (typeof format === "string") return { format };
  return { format: format.kind, schema: format.schema };
}

function encodeInput(input: EngineInput): Pick<WireRequest, "chat" | "text" | "tokens"> {
  if (input.kind !== "chat") return encodePlain(input);
  const { messages, tools = [], effort } = input;
  return { chat: { messages: messages.map(encodeMessage), tools: [...tools], effort } };
}

function encodeEmbedInput(input: EmbedRequest["inputs"][number]): EmbedInput {
  if (input.kind !== "pair") return encodePlain(input);
  const { query, document } = input;
  return { pair: { query, document } };
}

function encodePlain(input: PlainInput): Pick<WireRequest, "text" | "tokens"> {
  if (input.kind === "text") return { text: input.text };
  return { tokens: { tokens: [...input.tokens] } };
}

/** Little-endian whatever the machine: a view would depend on it and on the alignment. */
function bytesOf(values: Float32Array): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(values.length * 4));
  values.forEach((value, i) => {
    bytes.setFloat32(i * 4, value, true);
  });
  return new Uint8Array(bytes.buffer);
}

function floatsOf(bytes: Uint8Array): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const floats = new Float32Array(bytes.byteLength / 4);
  for (let i = 0; i < floats.length; i++) floats[i] = view.getFloat32(i * 4, true);
  return floats;
}

function decodeInput(
  message: Pick<GenerateRequest__Output, "chat" | "text" | "tokens">,
): EngineInput {
  if (message.chat) return decodeChat(message.chat);
  if (message.text !== undefined) return { kind: "text", text: message.text };
  if (message.tokens) return { kind: "tokens", tokens: message.tokens.tokens };
  throw unknown("input", "none of its members is set");
}

function decodeChat({ messages, tools, effort }: ChatInput__Output): EngineInput {
  const definitions = tools.map(({ name, description, parameters }) => ({
    name,
    ...(description !== "" && { description }),
    parameters,
  }));
  return {
    kind: "chat",
    messages: messages.map(decodeMessage),
    ...(definitions.length > 0 && { tools: definitions }),
    ...(effort !== "" && { effort: reasoningEffort(effort) }),
  };
}

function encodeToolUse(
  use: ToolUse | undefined,
): Pick<WireRequest, "toolChoice" | "toolNames" | "parallelToolCalls"> {
  if (use === undefined) return {};
  const { choice, names, parallel } = use;
  return { toolChoice: choice, toolNames: [...names], parallelToolCalls: parallel };
}

function decodeToolUse(message: GenerateRequest__Output): ToolUse | undefined {
  const { toolChoice: choice, toolNames: names, parallelToolCalls: parallel } = message;
  if (choice === "") return undefined;
  if (choice === "auto" || choice === "required") return { choice, names, parallel };
  throw unknown("tool choice", choice);
}

function encodeMessage(message: ChatMessage): WireMessage {
  return {
    role: message.role,
    content: message.content ?? undefined,
    name: message.name ?? undefined,
    toolCalls: (message.toolCalls ?? []).map((call) => ({
      id: call.id,
      name: call.function.name,
      arguments: call.function.arguments,
    })),
    toolCallId: message.toolCallId,
  };
}

function decodeMessage(message: WireMessageOut): ChatMessage {
  const toolCalls = message.toolCalls.map(({ id, name, arguments: text }) => ({
    id,
    type: "function" as const,
    function: { name, arguments: text },
  }));
  return {
    role: chatRole(message.role),
    content: message.content ?? null,
    ...(message.name !== undefined && { name: message.name }),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(message.toolCallId !== undefined && { toolCallId: message.toolCallId }),
  };
}

function encodeLogprob(entry: TokenLogprob): WireLogprob {
  return {
    token: entry.token,
    utf8: Uint8Array.from(entry.bytes),
    logprob: entry.logprob,
    top: entry.top.map(({ token, bytes, logprob }) => ({
      token,
      utf8: Uint8Array.from(bytes),
      logprob,
    })),
  };
}

function decodeLogprob(message: TokenLogprob__Output): TokenLogprob {
  return {
    token: message.token,
    bytes: [...message.utf8],
    logprob: message.logprob,
    top: message.top.map(({ token, utf8, logprob }) => ({ token, bytes: [...utf8], logprob })),
  };
}

function decodeUsage(message: Usage__Output): Usage {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = message;
  return { promptTokens, cachedTokens, completionTokens, reasoningTokens };
}

function decodeFailure(message: Failure__Output): EngineFailure {
  if (!isErrorCode(message.code)) throw unknown("error code", message.code);
  return {
    code: message.code,
    message: message.message,
    ...(message.param !== "" && { param: message.param }),
    ...(message.usage && { usage: decodeUsage(message.usage) }),
  };
}

function finishReason(text: string): FinishReason {
  switch (text) {
    case "stop":
    case "length":
    case "tool_calls":
    case "content_filter":
      return text;
    default:
      throw unknown("finish reason", text);
  }
}

function reasoningEffort(text: string): ReasoningEffort {
  const effort = REASONING_EFFORTS.find((each) => each === text);
  if (effort === undefined) throw unknown("reasoning effort", text);
  return effort;
}

function chatRole(text: string): ChatMessage["role"] {
  switch (text) {
    case "system":
    case "developer":
    case "user":
    case "assistant":
    case "tool":
      return text;
    default:
      throw unknown("role", text);
  }
}

function decodeFormat({ format, schema }: GenerateRequest__Output): OutputFormat {
  switch (format) {
    case "text":
    case "json_object":
      return format;
    case "json_schema":
      return { kind: format, schema };
    default:
      throw unknown("output format", format);
  }
}

function unknown(what: string, value: string): AppError {
  return new AppError(
    "server_error",
    `a peer sent an unknown ${what} (${JSON.stringify(value)}): run the same version on every node`,
  );
}
