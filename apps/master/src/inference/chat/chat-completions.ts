import { AppError } from "@heddle/base/errors";
import { type ChatCompletionRequest, parseChatCompletionRequest } from "@heddle/contracts/api/chat";
import type { EngineEvent, ReasoningStyle } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import type { EventStream } from "../../http/event-stream.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import type { ModelCatalog } from "../../models/model-catalog.ts";
import type { AdmittedCall } from "../call.ts";
import { tierOf } from "../call-priority.ts";
import type { InferenceAnswer } from "../dispatch/inference-port.ts";
import { cutShort, fingerprintOf, InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import { type ChatChoice, type ChatIdentity, ChunkWriter, completionBody } from "./chat-format.ts";
import { estimatePromptTokens, toGenerateRequest } from "./chat-request.ts";
import { type ChoiceCalls, ChoiceSplitter, type SplitChoice } from "./choice-splitter.ts";

/** A prepared call whose key permits it. */
interface Prepared extends PermittedCall {
  readonly request: ChatCompletionRequest;
  readonly maxTokens: number | undefined;
  readonly reasoning: ReasoningStyle | undefined;
}

/** POST /chat/completions from its body to the last byte of its answer. */
export class ChatCompletions {
  readonly #calls: InferenceCalls;

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
  }

  /** Answers the request. Throws an AppError only before anything of the answer was sent. */
  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.#calls.answer(
      reply,
      () => this.#prepare(http, reply),
      (prepared, signal) => this.#run(http, reply, prepared, signal),
    );
  }

  async #prepare(http: CallerRequest, reply: FastifyReply): Promise<Prepared> {
    const { models } = this.#calls.parts;
    const request = parseChatCompletionRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const choices = request.n ?? 1;
    const promptTokens = estimatePromptTokens(request);
    const asked = askedTokens(request, model, models);
    const maxTokens = this.#calls.boundOutput(http, {
      model,
      asked,
      promptTokens,
      choices,
    });
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens,
      outputTokens: (maxTokens ?? model.contextWindow) * choices,
      tier: request.service_tier,
      metadata: request.metadata ?? undefined,
      endUser: request.safety_identifier ?? request.user ?? undefined,
    });
    return { ...permitted, request, maxTokens, reasoning: models.reasoningStyle(model) };
  }

  /** Resolves with the failure of a started answer, or undefined. */
  async #run(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const { request, call, maxTokens } = prepared;
    const starting = this.#calls.start(
      http,
      prepared,
      { request: toGenerateRequest(request, maxTokens), later: request.priority ?? 0 },
      signal,
    );
    if (request.stream !== true) {
      const body = await collectAnswer(prepared, await starting, identityOf(prepared));
      this.#calls.send(http, reply, prepared, body);
      return undefined;
    }
    return this.#calls.stream(http, reply, prepared, signal, async (stream) => {
      const answer = await starting;
      const chunks = new ChunkWriter(identityOf(prepared), {
        includeUsage: request.stream_options?.include_usage === true,
        includeObfuscation: request.stream_options?.include_obfuscation === true,
      });
      await pumpEvents(prepared, answer, stream, chunks, signal);
      return request.stream_options?.include_usage ? chunks.usage(call.usage) : "";
    });
  }
}

/** The output limit in the request, which must fit the model's present context. */
export function askedTokens(
  request: Pick<ChatCompletionRequest, "max_tokens" | "max_completion_tokens">,
  model: ModelRecord,
  models: ModelCatalog,
): number | undefined {
  const param = request.max_completion_tokens == null ? "max_tokens" : "max_completion_tokens";
  const asked = request[param] ?? undefined;
  if (asked === undefined) return asked;
  const contextTokens = models.contextTokens(model);
  if (asked <= contextTokens) return asked;
  const message = `Invalid value for '${param}': ${asked} is more than the ${contextTokens} tokens of ${model.id}'s context.`;
  throw new AppError("invalid_value", message, { param, model: model.id });
}

function identityOf({ model, priority }: PermittedCall): ChatIdentity {
  return {
    id: `chatcmpl-${uniqueSuffix()}`,
    created: Math.floor(Date.now() / 1000),
    model: model.id,
    fingerprint: fingerprintOf(model),
    tier: tierOf(priority),
  };
}

async function collectAnswer(
  { request, call, reasoning }: Prepared,
  answer: InferenceAnswer,
  identity: ChatIdentity,
): Promise<string> {
  const choices = Array.from({ length: request.n ?? 1 }, () => ({
    splitter: new ChoiceSplitter(reasoning, choiceCalls(request)),
    choice: newChoice(),
  }));
  let complete = false;
  for await (const event of answer.events) {
    call.observe(event);
    if (event.type === "done") complete = true;
    if (event.type !== "delta" && event.type !== "finish") continue;
    const target = choices[event.choice];
    if (target) addEvent(event, target.splitter, target.choice, call);
  }
  if (!complete) throw cutShort(answer.node);
  const bodies = choices.map(({ choice }) => choice);
  return completionBody(identity, bodies, call.usage, request.logprobs === true);
}

/** The calls of tools that the answer may have. */
export function choiceCalls({
  tools,
  tool_choice: choice,
}: Pick<ChatCompletionRequest, "tools" | "tool_choice">): ChoiceCalls {
  if (tools == null || tools.length === 0 || choice === "none") return "none";
  return typeof choice === "object" && choice !== null && "function" in choice ? "named" : "any";
}

function newChoice(): ChatChoice {
  return { text: "", reasoning: "", toolCalls: [], logprobs: [], finish: undefined };
}

type ChoiceEvent = EngineEvent & { readonly type: "delta" | "finish" };

function addEvent(
  event: ChoiceEvent,
  splitter: ChoiceSplitter,
  choice: ChatChoice,
  call: AdmittedCall,
): void {
  const split = event.type === "delta" ? splitter.push(event) : splitter.finish();
  call.reasoned(split.reasoningTokens);
  choice.reasoning += split.reasoning;
  choice.text += split.content;
  for (const { index, id, name, arguments: text } of split.calls) {
    if (id !== undefined && name !== undefined) {
      choice.toolCalls.push({ id, type: "function", function: { name, arguments: text } });
      continue;
    }
    const begun = choice.toolCalls[index];
    if (begun === undefined) continue;
    const whole = { ...begun.function, arguments: begun.function.arguments + text };
    choice.toolCalls[index] = { ...begun, function: whole };
  }
  if (split.logprobs) choice.logprobs.push(...split.logprobs);
  if (event.type === "finish") choice.finish = splitter.reasonOf(event.reason);
}

async function pumpEvents(
  { request, call, reasoning }: Prepared,
  answer: InferenceAnswer,
  stream: EventStream,
  chunks: ChunkWriter,
  signal: AbortSignal,
): Promise<void> {
  const count = request.n ?? 1;
  const calls = choiceCalls(request);
  const splitters = Array.from({ length: count }, () => new ChoiceSplitter(reasoning, calls));
  let roles = "";
  for (let choice = 0; choice < count; choice++) roles += chunks.role(choice);
  stream.write(roles);
  let complete = false;
  for await (const event of answer.events) {
    call.observe(event);
    complete ||= event.type === "done";
    if (event.type !== "delta" && event.type !== "finish") continue;
    const splitter = splitters[event.choice];
    const text = splitter ? chunksOf(event, splitter, chunks, call) : "";
    if (text === "" || stream.write(text)) continue;
    await stream.drained();
    signal.throwIfAborted();
  }
  if (!complete) throw cutShort(answer.node);
}

function chunksOf(
  event: ChoiceEvent,
  splitter: ChoiceSplitter,
  chunks: ChunkWriter,
  call: AdmittedCall,
): string {
  if (event.type === "delta") return deltaChunks(event.choice, splitter.push(event), chunks, call);
  const rest = deltaChunks(event.choice, splitter.finish(), chunks, call);
  return rest + chunks.finish(event.choice, splitter.reasonOf(event.reason));
}

/** A delta without text is a partial character: it is sent only if it has scores. */
function deltaChunks(
  choice: number,
  { reasoning, content, calls, logprobs, reasoningTokens }: SplitChoice,
  chunks: ChunkWriter,
  call: AdmittedCall,
): string {
  call.reasoned(reasoningTokens);
  let text = reasoning === "" ? "" : chunks.reasoning(choice, reasoning);
  if (content !== "" || logprobs?.length) text += chunks.delta(choice, content, logprobs);
  for (const piece of calls) text += chunks.toolCall(choice, piece);
  return text;
}
