import { AppError } from "@heddle/base/errors";
import type {
  ChatMessage,
  EmbedRequest,
  EngineInput,
  EngineRequest,
  GenerateRequest,
} from "@heddle/contracts/engine";
import type { UpstreamSpec } from "@heddle/contracts/models/upstream-spec";
import { effortVariables } from "../text/reasoning-effort.ts";
import { DIALECTS, type Dialect, type Extension, type Ignorable } from "./dialects.ts";

/** A request as the upstream gets it. */
export interface UpstreamRequest {
  readonly path: "/chat/completions" | "/completions" | "/embeddings";
  readonly body: Readonly<Record<string, unknown>>;
}

/** What an upstream answers. */
export type AnsweredRequest = Exclude<EngineRequest, { readonly kind: "read" }>;

/** Throws `unsupported_parameter` for tokens, which OpenAI's contract does not give. */
export function answered(request: EngineRequest): AnsweredRequest {
  if (request.kind !== "read") return request;
  const message = "The tokens of this model are not known: its engine is a server behind an API.";
  throw new AppError("unsupported_parameter", message, { param: "model" });
}

/** Throws `unsupported_parameter` for what the upstream cannot do. */
export function toUpstreamRequest(
  request: AnsweredRequest,
  spec: UpstreamSpec,
  cacheSalt = "",
): UpstreamRequest {
  const dialect = DIALECTS[spec.dialect];
  if (request.kind === "embed") return { path: "/embeddings", body: embedBody(request, spec) };
  const common = {
    model: spec.model,
    stream: true,
    stream_options: {
      include_usage: true,
      ...(dialect.usage === "so far" && { continuous_usage_stats: true }),
    },
    ...samplingOf(request, spec, dialect),
    ...(dialect.salt !== undefined && cacheSalt !== "" && { [dialect.salt]: cacheSalt }),
  };
  const { input } = request;
  if (input.kind !== "chat") {
    return { path: "/completions", body: { ...common, ...textPart(request, input, spec) } };
  }
  const body = {
    ...common,
    messages: input.messages.map((message) => toMessage(message, dialect)),
    ...given(dialect.maxTokens, request.maxTokens),
    ...(request.topLogprobs !== undefined && {
      logprobs: true,
      top_logprobs: request.topLogprobs,
    }),
    ...formatPart(request),
    ...toolPart(request, input),
    ...effortPart(input, spec),
  };
  return { path: "/chat/completions", body };
}

/** The member, unless it has no value. */
function given(name: string, value: unknown): Record<string, unknown> {
  return value === undefined ? {} : { [name]: value };
}

function unsupported(param: string, { dialect }: UpstreamSpec): AppError {
  const message = `'${param}' is not supported by this model's engine, a server of the dialect ${dialect}. Leave it out.`;
  return new AppError("unsupported_parameter", message, { param });
}

function samplingOf(
  request: GenerateRequest,
  spec: UpstreamSpec,
  dialect: Dialect,
): Record<string, unknown> {
  const { sampling, choices, stop, minTokens, ignoreEnd, deterministic } = request;
  if (request.adapter !== undefined) throw unsupported("model", spec);
  const extension = (name: Extension, value: number | boolean | undefined) => {
    if (value === undefined) return {};
    const own = dialect.extensions[name];
    if (own === undefined) throw unsupported(name, spec);
    return { [own]: value };
  };
  const contract = (name: Ignorable, value: unknown) => {
    if (value !== undefined && dialect.ignores.has(name)) throw unsupported(name, spec);
    return given(name, value);
  };
  const draw = (value: number) => (dialect.hasNeutralDefaults && value === 1 ? undefined : value);
  const { temperature, topP, topK, minP, repetitionPenalty, seed, logitBias, ...others } = sampling;
  const { presencePenalty, frequencyPenalty, ...unsent } = others;
  // A new option must be sent or refused.
  unsent satisfies Record<string, never>;
  const biases = Object.fromEntries(logitBias.map(({ token, bias }) => [String(token), bias]));
  return {
    ...dialect.neutral,
    ...given("temperature", draw(temperature)),
    ...given("top_p", draw(topP)),
    ...contract("n", choices > 1 ? choices : undefined),
    ...given("stop", stop.length > 0 ? stop : undefined),
    ...contract("presence_penalty", presencePenalty || undefined),
    ...given("frequency_penalty", frequencyPenalty || undefined),
    ...contract("seed", seed),
    ...contract("logit_bias", logitBias.length > 0 ? biases : undefined),
    ...extension("top_k", topK),
    ...extension("min_p", minP),
    ...extension("repetition_penalty", repetitionPenalty),
    ...extension("min_tokens", minTokens),
    ...extension("ignore_eos", ignoreEnd),
    ...extension("deterministic", deterministic || undefined),
    ...extension("thinking_token_budget", request.reasoningTokens),
  };
}

function textPart(
  request: GenerateRequest,
  input: Exclude<EngineInput, { readonly kind: "chat" }>,
  spec: UpstreamSpec,
): Record<string, unknown> {
  if (request.format !== "text") throw unsupported("response_format", spec);
  const isTokens = input.kind === "tokens";
  if (isTokens && DIALECTS[spec.dialect].ignores.has("prompt")) throw unsupported("prompt", spec);
  // Servers cut at 16 tokens where nothing is said.
  if (request.maxTokens === undefined) {
    const message = "'max_tokens' is required by this model's engine.";
    throw new AppError("missing_required_parameter", message, { param: "max_tokens" });
  }
  if (input.suffix !== undefined && !DIALECTS[spec.dialect].fills)
    throw unsupported("suffix", spec);
  return {
    prompt: isTokens ? input.tokens : input.text,
    ...given("suffix", input.suffix),
    max_tokens: request.maxTokens,
    ...scorePart(request, spec),
  };
}

/** A prompt is divided from its answer by its tokens, whose scores are asked for in any case. */
function scorePart(
  { echo, topLogprobs }: GenerateRequest,
  spec: UpstreamSpec,
): Record<string, unknown> {
  if (!echo) return given("logprobs", topLogprobs);
  const { echoes } = DIALECTS[spec.dialect];
  if (echoes === undefined) throw unsupported("echo", spec);
  return { echo, logprobs: Math.max(echoes, topLogprobs ?? 0) };
}

function toMessage(message: ChatMessage, dialect: Dialect): Record<string, unknown> {
  const isUnknown = message.role === "developer" && !dialect.hasDeveloper;
  return {
    role: isUnknown ? "system" : message.role,
    content: message.content,
    ...given("name", message.name),
    ...given("tool_calls", message.toolCalls?.length ? message.toolCalls : undefined),
    ...given("tool_call_id", message.toolCallId),
  };
}

function formatPart({ format }: GenerateRequest): Record<string, unknown> {
  if (format === "text") return {};
  if (format === "json_object") return { response_format: { type: format } };
  const schema: unknown = JSON.parse(format.schema);
  // Without `strict` OpenAI's servers take the schema for a hint.
  const wanted = { name: "answer", schema, strict: true };
  return { response_format: { type: format.kind, json_schema: wanted } };
}

/** Only the tools that may be called are offered: few servers know `allowed_tools`. */
function toolPart(
  { toolUse }: GenerateRequest,
  { tools = [] }: EngineInput & { readonly kind: "chat" },
): Record<string, unknown> {
  if (toolUse === undefined) return {};
  const callable = tools.filter(({ name }) => toolUse.names.includes(name));
  return {
    tools: callable.map(({ name, description, parameters }) => ({
      type: "function",
      function: { name, ...given("description", description), parameters: JSON.parse(parameters) },
    })),
    tool_choice: toolUse.choice,
    parallel_tool_calls: toolUse.parallel,
  };
}

function effortPart(
  { effort }: EngineInput & { readonly kind: "chat" },
  spec: UpstreamSpec,
): Record<string, unknown> {
  const { effort: form } = DIALECTS[spec.dialect];
  if (effort === undefined) return {};
  if (form === "member") return { reasoning_effort: effort };
  if (form === undefined) {
    if (effort === "none") return {};
    throw unsupported("reasoning_effort", spec);
  }
  return { chat_template_kwargs: effortVariables(effort) };
}

function embedBody({ inputs }: EmbedRequest, spec: UpstreamSpec): Record<string, unknown> {
  const values = inputs.map((input) => {
    if (input.kind === "pair") throw unsupported("model", spec);
    return input.kind === "text" ? input.text : input.tokens;
  });
  const hasTokens = inputs.some(({ kind }) => kind === "tokens");
  if (hasTokens && DIALECTS[spec.dialect].ignores.has("prompt")) throw unsupported("input", spec);
  return { model: spec.model, input: values, encoding_format: "float" };
}
