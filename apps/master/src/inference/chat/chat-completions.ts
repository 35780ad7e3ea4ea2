import type { ServerResponse } from "node:http";
import { AppError, toAppError } from "@heddle/base/errors";
import { type ChatCompletionRequest, parseChatCompletionRequest } from "@heddle/contracts/api/chat";
import type { EngineEvent, ReasoningStyle } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { envelopeBody } from "../../http/error-reply.ts";
import { EventStream } from "../../http/event-stream.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import type { KeyLimiter } from "../../http/limits/key-limiter.ts";
import { rateLimitHeaders } from "../../http/limits/rate-limit-headers.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import type { ModelCatalog } from "../../models/model-catalog.ts";
import type { Accounting } from "../accounting.ts";
import { AdmittedCall } from "../call.ts";
import type { InferenceAnswer, InferenceDispatch } from "../dispatch/inference-port.ts";
import { type InFlight, shuttingDown } from "../in-flight.ts";
import { boundOutput } from "./bound-output.ts";
import { type ChatChoice, type ChatIdentity, ChunkWriter, completionBody } from "./chat-format.ts";
import { estimatePromptTokens, toGenerateRequest } from "./chat-request.ts";
import { ReasoningSplitter, type SplitDelta } from "./reasoning.ts";

export interface ChatCompletionsParts {
  readonly models: ModelCatalog;
  readonly limits: KeyLimiter;
  readonly accounting: Accounting;
  readonly inFlight: InFlight;
  readonly dispatch: InferenceDispatch;
  /** The maximum duration of a call, its answer included. */
  readonly deadlineMs: number;
  /** Heartbeat interval of a silent stream; also the time after which a waiting one opens. */
  readonly heartbeatMs: number;
  /** How long a client may read nothing of its stream; default: the stream's own limit. */
  readonly stallMs?: number | undefined;
}

/** A prepared call whose key permits it. */
interface Prepared {
  readonly request: ChatCompletionRequest;
  readonly model: ModelRecord;
  readonly call: AdmittedCall;
  readonly maxTokens: number | undefined;
  readonly headers: Record<string, string>;
  readonly reasoning: ReasoningStyle | undefined;
}

/** POST /chat/completions from its body to the last byte of its answer. */
export class ChatCompletions {
  readonly #parts: ChatCompletionsParts;

  constructor(parts: ChatCompletionsParts) {
    this.#parts = parts;
  }

  /** Answers the request. Throws an AppError only before anything of the answer was sent. */
  async answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    const abort = this.#enter();
    try {
      await this.#serve(http, reply, abort);
    } finally {
      this.#parts.inFlight.leave(abort);
    }
  }

  /** Checked before the body is parsed: a call refused here has no model yet. */
  #enter(): AbortController {
    try {
      return this.#parts.inFlight.enter();
    } catch (thrown) {
      this.#parts.accounting.metrics.failed("", toAppError(thrown).code);
      throw thrown;
    }
  }

  async #serve(http: CallerRequest, reply: FastifyReply, abort: AbortController): Promise<void> {
    const prepared = this.#prepare(http, reply);
    const release = endWith(abort, reply.raw, this.#parts.deadlineMs);
    let failure: AppError | undefined;
    try {
      failure = await this.#run(http, reply, prepared, abort.signal);
    } catch (thrown) {
      failure = underId(prepared.model, this.#failureOf(thrown, abort.signal));
      reply.headers(prepared.headers);
      throw failure;
    } finally {
      release();
      prepared.call.close(failure);
    }
  }

  /** The reason for which this side ended the call takes precedence over its visible end. */
  #failureOf(thrown: unknown, signal: AbortSignal): AppError {
    if (signal.aborted) return toAppError(signal.reason);
    const failure = toAppError(thrown);
    // When a whole cluster stops, a worker lost during this master's shutdown is part of it.
    const isShutdown = failure.code === "worker_lost" && this.#parts.inFlight.closing;
    return isShutdown ? shuttingDown() : failure;
  }

  #prepare(http: CallerRequest, reply: FastifyReply): Prepared {
    const { models, limits, accounting } = this.#parts;
    const { apiKey: key, reservation } = http;
    if (!key || !reservation) throw new Error("no call gets here without a key");
    const request = parseChatCompletionRequest(parseJsonBody(http.body as Buffer));
    const model = models.resolve(request.model, key);
    const choices = request.n ?? 1;
    const promptTokens = estimatePromptTokens(request);
    const asked = askedTokens(request, model, models);
    const { tokensPerMinute } = limits.limitsOf(key);
    const maxTokens = boundOutput(tokensPerMinute, asked, promptTokens, choices);
    const outputTokens = (maxTokens ?? model.contextWindow) * choices;
    try {
      limits.reserve(reservation, key, promptTokens + outputTokens);
    } catch (thrown) {
      reply.headers(limits.headersOf(key));
      accounting.metrics.failed(model.id, toAppError(thrown).code);
      throw thrown;
    }
    const headers = rateLimitHeaders(reservation.view());
    const call = new AdmittedCall({
      requestId: http.id,
      key,
      model,
      accounting,
      reservation,
      metadata: request.metadata ?? undefined,
      endUser: request.safety_identifier ?? request.user ?? undefined,
      reservedOutputTokens: outputTokens,
    });
    const reasoning = models.reasoningStyle(model);
    return { request, model, call, maxTokens, headers, reasoning };
  }

  /** Resolves with the failure of a started answer, or undefined. */
  async #run(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const { request, model, call, maxTokens } = prepared;
    call.handedOver(reply.elapsedTime);
    const starting = this.#parts.dispatch.start(
      {
        requestId: http.id,
        deployment: model.deployment,
        request: toGenerateRequest(request, maxTokens),
        fairKey: http.apiKey?.id ?? "",
        deadlineMs: this.#parts.deadlineMs,
        priority: 0 - (request.priority ?? 0),
      },
      signal,
    );
    if (request.stream === true) return this.#stream(http.id, reply, prepared, starting, signal);
    const answer = await starting;
    call.node = answer.node;
    const body = await collectAnswer(prepared, answer, identityOf(model));
    reply.hijack();
    reply.raw.writeHead(200, {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(body),
      ...headersOf(prepared, http.id),
    });
    reply.raw.end(body);
    return undefined;
  }

  /**
   * Throws only before the head is sent. After that, as for a heartbeat during a long wait, a
   * failure is an event, and `[DONE]` is omitted.
   */
  async #stream(
    requestId: string,
    reply: FastifyReply,
    prepared: Prepared,
    starting: Promise<InferenceAnswer>,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const { request, model, call } = prepared;
    const stream = new EventStream(reply.raw, {
      heartbeatMs: this.#parts.heartbeatMs,
      stallMs: this.#parts.stallMs,
      onOpen: () => {
        reply.hijack();
        return headersOf(prepared, requestId);
      },
    });
    try {
      const answer = await starting;
      call.node = answer.node;
      const chunks = new ChunkWriter(identityOf(model), {
        includeUsage: request.stream_options?.include_usage === true,
        includeObfuscation: request.stream_options?.include_obfuscation === true,
      });
      await pumpEvents(prepared, answer, stream, chunks, signal);
      const usage = request.stream_options?.include_usage ? chunks.usage(call.usage) : "";
      stream.end(`${usage}data: [DONE]\n\n`);
      return undefined;
    } catch (thrown) {
      if (!stream.isOpen) {
        stream.abandon();
        throw thrown;
      }
      const failure = underId(model, this.#failureOf(thrown, signal));
      stream.end(`event: error\ndata: ${envelopeBody(failure, requestId)}\n\n`);
      // A client that does not read gets no error event; its pending data is dropped.
      if (failure.code === "request_timeout") reply.raw.destroy();
      return failure;
    }
  }
}

/** The headers of an answer; without the node if a stream opens before a worker accepts it. */
function headersOf({ headers, call }: Prepared, requestId: string): Record<string, string> {
  const node = call.node === undefined ? undefined : { "x-heddle-node": call.node };
  return { ...headers, "x-request-id": requestId, ...node };
}

/** The output limit in the request, which must fit the model's present context. */
function askedTokens(
  request: ChatCompletionRequest,
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

function identityOf(model: ModelRecord): ChatIdentity {
  return {
    id: `chatcmpl-${uniqueSuffix()}`,
    created: Math.floor(Date.now() / 1000),
    model: model.id,
    fingerprint: model.standIn ? `${model.deployment} (stand-in)` : model.deployment,
  };
}

/**
 * Aborts the call when its client disconnects or its time is over. Returns the function that stops
 * watching.
 */
function endWith(abort: AbortController, raw: ServerResponse, deadlineMs: number): () => void {
  const onClose = (): void => {
    if (!raw.writableFinished) abort.abort(new AppError("cancelled", "The client hung up."));
  };
  const timer = setTimeout(() => {
    const message = `The answer was not finished within ${deadlineMs} ms.`;
    abort.abort(new AppError("deadline_exceeded", message));
  }, deadlineMs);
  raw.on("close", onClose);
  if (raw.destroyed) onClose();
  return () => {
    clearTimeout(timer);
    raw.off("close", onClose);
  };
}

/** Dispatch knows deployments only; the caller knows the model id of its request. */
function underId(model: ModelRecord, failure: AppError): AppError {
  if (failure.model === undefined || failure.model === model.id) return failure;
  const { code, param, retryAfterMs, node, cause } = failure;
  const isSubject = failure.message.startsWith(`${failure.model} `);
  const message = isSubject
    ? `${model.id}${failure.message.slice(failure.model.length)}`
    : failure.message;
  return new AppError(code, message, { param, retryAfterMs, node, cause, model: model.id });
}

async function collectAnswer(
  { request, call, reasoning }: Prepared,
  answer: InferenceAnswer,
  identity: ChatIdentity,
): Promise<string> {
  const choices = Array.from({ length: request.n ?? 1 }, () => ({
    splitter: new ReasoningSplitter(reasoning),
    choice: { text: "", reasoning: "", logprobs: [], finish: undefined } as ChatChoice,
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

type ChoiceEvent = EngineEvent & { readonly type: "delta" | "finish" };

function addEvent(
  event: ChoiceEvent,
  splitter: ReasoningSplitter,
  choice: ChatChoice,
  call: AdmittedCall,
): void {
  const split = event.type === "delta" ? splitter.push(event) : splitter.finish();
  call.reasoned(split.reasoningTokens);
  choice.reasoning += split.reasoning;
  choice.text += split.content;
  if (split.logprobs) choice.logprobs.push(...split.logprobs);
  if (event.type === "finish") choice.finish = event.reason;
}

async function pumpEvents(
  { request, call, reasoning }: Prepared,
  answer: InferenceAnswer,
  stream: EventStream,
  chunks: ChunkWriter,
  signal: AbortSignal,
): Promise<void> {
  const count = request.n ?? 1;
  const splitters = Array.from({ length: count }, () => new ReasoningSplitter(reasoning));
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
  splitter: ReasoningSplitter,
  chunks: ChunkWriter,
  call: AdmittedCall,
): string {
  if (event.type === "delta") return deltaChunks(event.choice, splitter.push(event), chunks, call);
  const rest = deltaChunks(event.choice, splitter.finish(), chunks, call);
  return rest + chunks.finish(event.choice, event.reason);
}

/** A delta without text is a partial character: it is sent only if it has scores. */
function deltaChunks(
  choice: number,
  { reasoning, content, logprobs, reasoningTokens }: SplitDelta,
  chunks: ChunkWriter,
  call: AdmittedCall,
): string {
  call.reasoned(reasoningTokens);
  const thought = reasoning === "" ? "" : chunks.reasoning(choice, reasoning);
  if (content === "" && !logprobs?.length) return thought;
  return thought + chunks.delta(choice, content, logprobs);
}

/** Events that end without `done` or `failed` are a truncated answer, never a success. */
function cutShort(node: string): AppError {
  return new AppError("worker_lost", "The worker was lost before the answer was finished.", {
    node,
  });
}
