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
import type { CallPart } from "../call.ts";
import { tierOf } from "../call-priority.ts";
import { fingerprintOf, InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import { type ChoicePart, choiceParts } from "../parts/choice-parts.ts";
import { type DividedCall, type PartSink, runParts } from "../parts/run-parts.ts";
import { type ChatChoice, type ChatIdentity, ChunkWriter, completionBody } from "./chat-format.ts";
import { estimatePromptTokens, toGenerateRequest } from "./chat-request.ts";
import { type ChoiceCalls, ChoiceSplitter, type SplitChoice } from "./choice-splitter.ts";
import { mayHoldText } from "./reasoning.ts";

/** A prepared call whose key permits it. */
interface Prepared extends DividedCall {
  readonly request: ChatCompletionRequest;
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
    const mayDivide = request.seed == null || models.countsSeeds(model);
    const replicas = mayDivide ? models.readyReplicas(model) : 1;
    const parts = choiceParts([toGenerateRequest(request, maxTokens)], Math.max(1, replicas));
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens,
      outputTokens: (maxTokens ?? model.contextWindow) * choices,
      engineRequests: parts.length,
      tier: request.service_tier,
      metadata: request.metadata ?? undefined,
      endUser: request.safety_identifier ?? request.user ?? undefined,
    });
    const reasoning = models.reasoningStyle(model);
    const later = request.priority ?? 0;
    const mayHold = mayHoldText(request.stream === true, reasoning);
    return { ...permitted, parts, later, mayHold, request, reasoning };
  }

  /** Resolves with the failure of a started answer, or undefined. */
  async #run(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const { request, call } = prepared;
    const identity = identityOf(prepared);
    if (request.stream !== true) {
      const choices = splittersOf(prepared).map((splitter) => ({ splitter, choice: newChoice() }));
      await runParts(this.#calls, http, prepared, collecting(choices), signal);
      const bodies = choices.map(({ choice }) => choice);
      const body = completionBody(identity, bodies, call.usage, request.logprobs === true);
      this.#calls.send(http, reply, prepared, body);
      return undefined;
    }
    return this.#calls.stream(http, reply, prepared, signal, async (stream) => {
      const chunks = new ChunkWriter(identity, {
        includeUsage: request.stream_options?.include_usage === true,
        includeObfuscation: request.stream_options?.include_obfuscation === true,
      });
      const sink = streaming(prepared, stream, chunks, signal);
      await runParts(this.#calls, http, prepared, sink, signal);
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

interface OpenChoice {
  readonly splitter: ChoiceSplitter;
  readonly choice: ChatChoice;
}

/** Collects the choices of a whole answer, of which nothing is sent before its end. */
function collecting(choices: readonly OpenChoice[]): PartSink {
  return {
    take: (event, part, tally) => {
      if (event.type !== "delta" && event.type !== "finish") return;
      const target = choices[choiceOf(event, part)];
      if (target) addEvent(event, target.splitter, target.choice, tally);
    },
  };
}

/** The choice's number in the call; none has -1. */
function choiceOf({ choice }: ChoiceEvent, { first, request }: ChoicePart): number {
  return choice < request.choices ? first + choice : -1;
}

/** One for each choice of the call. */
function splittersOf({ request, reasoning }: Prepared): ChoiceSplitter[] {
  const calls = choiceCalls(request);
  return Array.from({ length: request.n ?? 1 }, () => new ChoiceSplitter(reasoning, calls));
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
  tally: CallPart,
): void {
  const split = event.type === "delta" ? splitter.push(event) : splitter.finish();
  tally.reasoned(split.reasoningTokens);
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

/** Sends each event of an answer; the roles of all choices before the first. */
function streaming(
  prepared: Prepared,
  stream: EventStream,
  chunks: ChunkWriter,
  signal: AbortSignal,
): PartSink {
  const splitters = splittersOf(prepared);
  let hasRoles = false;
  const drained = async () => {
    await stream.drained();
    signal.throwIfAborted();
  };
  return {
    take: (event, part, tally) => {
      if (!hasRoles) stream.write(rolesOf(prepared.request, chunks));
      hasRoles = true;
      if (event.type !== "delta" && event.type !== "finish") return;
      const index = choiceOf(event, part);
      const splitter = splitters[index];
      const text = splitter ? chunksOf({ ...event, choice: index }, splitter, chunks, tally) : "";
      if (text !== "" && !stream.write(text)) return drained();
    },
  };
}

function rolesOf({ n }: ChatCompletionRequest, chunks: ChunkWriter): string {
  return Array.from({ length: n ?? 1 }, (_, choice) => chunks.role(choice)).join("");
}

function chunksOf(
  event: ChoiceEvent,
  splitter: ChoiceSplitter,
  chunks: ChunkWriter,
  tally: CallPart,
): string {
  if (event.type === "delta") return deltaChunks(event.choice, splitter.push(event), chunks, tally);
  const rest = deltaChunks(event.choice, splitter.finish(), chunks, tally);
  return rest + chunks.finish(event.choice, splitter.reasonOf(event.reason));
}

/** A delta without text is a partial character: it is sent only if it has scores. */
function deltaChunks(
  choice: number,
  { reasoning, content, calls, logprobs, reasoningTokens }: SplitChoice,
  chunks: ChunkWriter,
  tally: CallPart,
): string {
  tally.reasoned(reasoningTokens);
  let text = reasoning === "" ? "" : chunks.reasoning(choice, reasoning);
  if (content !== "" || logprobs?.length) text += chunks.delta(choice, content, logprobs);
  for (const piece of calls) text += chunks.toolCall(choice, piece);
  return text;
}
