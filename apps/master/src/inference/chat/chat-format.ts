import type { FinishReason, TokenLogprob, ToolCall, Usage } from "@heddle/contracts/engine";
import type { ServiceTier } from "../call-priority.ts";
import type { ToolCallDelta } from "./tool-calls.ts";

/** The constant fields of all chunks of one call. */
export interface ChatIdentity {
  readonly id: string;
  /** Seconds since the epoch. */
  readonly created: number;
  readonly model: string;
  /** Identifies what computes the answer: the deployment, and whether it is a stand-in. */
  readonly fingerprint: string;
  readonly tier: ServiceTier;
}

/** One choice of a non-streamed answer. */
export interface ChatChoice {
  text: string;
  reasoning: string;
  toolCalls: ToolCall[];
  logprobs: TokenLogprob[];
  finish: FinishReason | undefined;
}

export interface ChunkOptions {
  readonly includeUsage: boolean;
  readonly includeObfuscation: boolean;
}

/**
 * The event texts of one streamed answer. Constant parts are built once, so a token costs one small
 * JSON string and two concatenations.
 */
export class ChunkWriter {
  readonly #head: string;
  readonly #tail: string;
  readonly #obfuscate: boolean;

  constructor(identity: ChatIdentity, options: ChunkOptions) {
    this.#head = `data: ${identityJson(identity, "chat.completion.chunk")},"choices":[`;
    this.#tail = options.includeUsage ? '],"usage":null' : "]";
    this.#obfuscate = options.includeObfuscation;
  }

  /** The first chunk of a choice, the only one with the role. */
  role(choice: number): string {
    return this.#chunk(choice, '{"role":"assistant","content":"","refusal":null}', "null", "null");
  }

  delta(choice: number, text: string, logprobs: readonly TokenLogprob[] | undefined): string {
    const content = JSON.stringify(text);
    const scores = logprobs ? logprobsJson(logprobs) : "null";
    return this.#chunk(choice, `{"content":${content}}`, scores, "null", text.length);
  }

  /** A piece of the reasoning, in the extension field that other servers use. */
  reasoning(choice: number, text: string): string {
    const delta = `{"reasoning_content":${JSON.stringify(text)}}`;
    return this.#chunk(choice, delta, "null", "null", text.length);
  }

  /** A piece of a call of a tool. */
  toolCall(choice: number, { index, id, name, arguments: text }: ToolCallDelta): string {
    const first = id === undefined ? {} : { id, type: "function" };
    const call = { index, ...first, function: { name, arguments: text } };
    const delta = JSON.stringify({ tool_calls: [call] });
    return this.#chunk(choice, delta, "null", "null", text.length);
  }

  finish(choice: number, reason: FinishReason): string {
    return this.#chunk(choice, "{}", "null", `"${reason}"`);
  }

  /** The chunk after the last one, for `stream_options.include_usage`. */
  usage(usage: Usage): string {
    return `${this.#head}],"usage":${usageJson(usage)}}\n\n`;
  }

  #chunk(choice: number, delta: string, logprobs: string, reason: string, length = 0): string {
    const padding = this.#obfuscate ? `,"obfuscation":"${paddingFor(length)}"` : "";
    return `${this.#head}{"index":${choice},"delta":${delta},"logprobs":${logprobs},"finish_reason":${reason}}${this.#tail}${padding}}\n\n`;
  }
}

/** The body of a non-streamed answer. */
export function completionBody(
  identity: ChatIdentity,
  choices: readonly ChatChoice[],
  usage: Usage,
  withLogprobs: boolean,
): string {
  const items = choices.map((choice, index) => {
    const scores = withLogprobs ? logprobsJson(choice.logprobs) : "null";
    const { text, reasoning, toolCalls } = choice;
    const thought = reasoning === "" ? "" : `,"reasoning_content":${JSON.stringify(reasoning)}`;
    const content = text === "" && toolCalls.length > 0 ? null : text;
    const calls = toolCalls.length === 0 ? "" : `,"tool_calls":${JSON.stringify(toolCalls)}`;
    const message = `{"role":"assistant","content":${JSON.stringify(content)}${thought},"refusal":null${calls}}`;
    return `{"index":${index},"message":${message},"logprobs":${scores},"finish_reason":"${choice.finish ?? "stop"}"}`;
  });
  const head = identityJson(identity, "chat.completion");
  return `${head},"choices":[${items.join(",")}],"usage":${usageJson(usage)}}`;
}

/** Opens the object; the caller closes it. */
function identityJson(
  { id, created, model, fingerprint, tier }: ChatIdentity,
  object: string,
): string {
  return `{"id":"${id}","object":"${object}","created":${created},"model":${JSON.stringify(model)},"service_tier":"${tier}","system_fingerprint":${JSON.stringify(fingerprint)}`;
}

export function usageJson(usage: Usage): string {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return `{"prompt_tokens":${promptTokens},"completion_tokens":${completionTokens},"total_tokens":${promptTokens + completionTokens},"prompt_tokens_details":{"cached_tokens":${cachedTokens},"cache_write_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":${reasoningTokens},"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`;
}

function logprobsJson(logprobs: readonly TokenLogprob[]): string {
  const content = logprobs.map(({ token, logprob, bytes, top }) => ({
    token,
    logprob,
    bytes,
    top_logprobs: top,
  }));
  return `{"content":${JSON.stringify(content)},"refusal":null}`;
}

/** Deltas are padded to multiples of this many characters, to hide the sizes of tokens. */
const OBFUSCATION_STEP = 16;
const PADDING = "aB3dE5gH7jK9mN1pQ2sT4vW6";

export function paddingFor(length: number): string {
  const wanted = OBFUSCATION_STEP - (length % OBFUSCATION_STEP);
  const from = Math.floor(Math.random() * (PADDING.length - wanted));
  return PADDING.slice(from, from + wanted);
}
