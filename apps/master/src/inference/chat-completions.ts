import type { ServerResponse } from "node:http";
import type { RateLimiter } from "@heddle/auth/rate-limiter";
import { AppError, toAppError } from "@heddle/base/errors";
import { type ChatCompletionRequest, parseChatCompletionRequest } from "@heddle/contracts/chat";
import type { EngineEvent } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../http/access.ts";
import { envelopeBody } from "../http/error-reply.ts";
import { EventStream } from "../http/event-stream.ts";
import { parseJsonBody } from "../http/json-body.ts";
import { uniqueSuffix } from "../http/request-id.ts";
import type { ModelCatalog } from "../models/model-catalog.ts";
import type { InferenceAnswer, InferenceDispatch } from "../ports.ts";
import type { Accounting } from "./accounting.ts";
import { admit, boundOutput } from "./admission.ts";
import { InferenceCall } from "./call.ts";
import { type ChatChoice, type ChatIdentity, ChunkWriter, completionBody } from "./chat-format.ts";
import { estimatePromptTokens, toGenerateRequest } from "./chat-request.ts";
import { type InFlight, shuttingDown } from "./in-flight.ts";

export interface ChatCompletionsParts {
  readonly models: ModelCatalog;
  readonly limiter: RateLimiter;
  readonly accounting: Accounting;
  readonly inFlight: InFlight;
  readonly dispatch: InferenceDispatch;
  /** The longest that a call may take, its answer included. */
  readonly deadlineMs: number;
}

/** A prepared call, once its key may make it. */
interface Prepared {
  readonly request: ChatCompletionRequest;
  readonly model: ModelRecord;
  readonly call: InferenceCall;
  readonly maxTokens: number | undefined;
  readonly headers: Record<string, string>;
}

/** POST /chat/completions from its body to the last byte of its answer. */
export class ChatCompletions {
  readonly #parts: ChatCompletionsParts;

  constructor(parts: ChatCompletionsParts) {
    this.#parts = parts;
  }

  /** Answers the request. Throws an AppError only while nothing of an answer has been sent. */
  async answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    const abort = this.#enter();
    try {
      await this.#serve(http, reply, abort);
    } finally {
      this.#parts.inFlight.leave(abort);
    }
  }

  /** A call refused here has named no model yet: its body is not worth parsing. */
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
      throw failure;
    } finally {
      release();
      prepared.call.close(failure);
    }
  }

  /** Why this side ended the call: that counts, whatever its end then looked like from outside. */
  #failureOf(thrown: unknown, signal: AbortSignal): AppError {
    if (signal.aborted) return toAppError(signal.reason);
    const failure = toAppError(thrown);
    // Where a whole cluster ends at once, a worker lost while this master closes is part of it.
    const isShutdown = failure.code === "worker_lost" && this.#parts.inFlight.closing;
    return isShutdown ? shuttingDown() : failure;
  }

  #prepare(http: CallerRequest, reply: FastifyReply): Prepared {
    const { models, limiter, accounting } = this.#parts;
    const key = http.apiKey;
    if (!key) throw new Error("the guard lets no call through without a key");
    const request = parseChatCompletionRequest(parseJsonBody(http.body as Buffer));
    const model = models.resolve(request.model, key);
    const choices = request.n ?? 1;
    const promptTokens = estimatePromptTokens(request);
    const asked = askedTokens(request, model, models);
    const maxTokens = boundOutput(key, asked, promptTokens, choices);
    const outputTokens = (maxTokens ?? model.contextWindow) * choices;
    const admitted = admit(
      limiter,
      key,
      { promptTokens, outputTokens },
      {
        setHeaders: (headers) => reply.headers(headers),
        onRefused: ({ code }) => accounting.metrics.failed(model.id, code),
      },
    );
    const call = new InferenceCall({
      requestId: http.id,
      key,
      model,
      accounting,
      reservation: admitted.reservation,
      endUser: request.safety_identifier ?? request.user ?? undefined,
      reservedOutputTokens: outputTokens,
    });
    return { request, model, call, maxTokens, headers: admitted.headers };
  }

  /** Resolves with the failure of an answer that had begun, or nothing. */
  async #run(
    http: CallerRequest,
    reply: FastifyReply,
    { request, model, call, maxTokens, headers }: Prepared,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    call.handedOver(reply.elapsedTime);
    const answer = await this.#parts.dispatch.start(
      {
        requestId: http.id,
        deployment: model.deployment,
        request: toGenerateRequest(request, maxTokens),
        fairKey: http.apiKey?.id ?? "",
        deadlineMs: this.#parts.deadlineMs,
        priority: 0,
      },
      signal,
    );
    call.node = answer.node;
    const identity = identityOf(model);
    const sent = { ...headers, "x-request-id": http.id, "x-heddle-node": answer.node };
    if (request.stream === true) {
      reply.hijack();
      return streamAnswer({
        request,
        call,
        answer,
        identity,
        signal,
        failureOf: (thrown) => this.#failureOf(thrown, signal),
        headers: sent,
        raw: reply.raw,
      });
    }
    const body = await collectAnswer(request, call, answer, identity);
    reply.hijack();
    reply.raw.writeHead(200, {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(body),
      ...sent,
    });
    reply.raw.end(body);
    return undefined;
  }
}

/** The output bound that the request names, which the context served now must be able to hold. */
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

/** Ends the call when its client hangs up or its time is over. Returns how to stop watching. */
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

/** The dispatch knows deployments only; the caller knows the id that it asked for. */
function underId(model: ModelRecord, failure: AppError): AppError {
  if (failure.model === undefined || failure.model === model.id) return failure;
  const { code, message, param, retryAfterMs, node, cause } = failure;
  return new AppError(code, message, { param, retryAfterMs, node, cause, model: model.id });
}

async function collectAnswer(
  request: ChatCompletionRequest,
  call: InferenceCall,
  answer: InferenceAnswer,
  identity: ChatIdentity,
): Promise<string> {
  const choices: ChatChoice[] = Array.from({ length: request.n ?? 1 }, () => ({
    text: "",
    logprobs: [],
    finish: undefined,
  }));
  let complete = false;
  for await (const event of answer.events) {
    call.observe(event);
    if (event.type === "delta") addDelta(choices[event.choice], event);
    else if (event.type === "finish") addFinish(choices[event.choice], event.reason);
    else if (event.type === "done") complete = true;
  }
  if (!complete) throw cutShort(answer.node);
  return completionBody(identity, choices, call.usage, request.logprobs === true);
}

function addDelta(choice: ChatChoice | undefined, event: EngineEvent & { type: "delta" }): void {
  if (!choice) return;
  choice.text += event.text;
  if (event.logprobs) choice.logprobs.push(...event.logprobs);
}

function addFinish(choice: ChatChoice | undefined, reason: ChatChoice["finish"]): void {
  if (choice) choice.finish = reason;
}

interface Streaming {
  readonly request: ChatCompletionRequest;
  readonly call: InferenceCall;
  readonly answer: InferenceAnswer;
  readonly identity: ChatIdentity;
  readonly signal: AbortSignal;
  readonly failureOf: (thrown: unknown) => AppError;
  readonly headers: Record<string, string>;
  readonly raw: ServerResponse;
}

/** Never throws: the head is out, so a failure is told as an event, and `[DONE]` is left out. */
async function streamAnswer(streaming: Streaming): Promise<AppError | undefined> {
  const { request, raw, headers } = streaming;
  const stream = new EventStream(raw, headers);
  const chunks = new ChunkWriter(streaming.identity, {
    includeUsage: request.stream_options?.include_usage === true,
    includeObfuscation: request.stream_options?.include_obfuscation === true,
  });
  try {
    await pumpEvents(streaming, stream, chunks);
    const usage = request.stream_options?.include_usage ? chunks.usage(streaming.call.usage) : "";
    stream.end(`${usage}data: [DONE]\n\n`);
    return undefined;
  } catch (thrown) {
    const failure = streaming.failureOf(thrown);
    const requestId = headers["x-request-id"] ?? "";
    stream.end(`event: error\ndata: ${envelopeBody(failure, requestId)}\n\n`);
    return failure;
  }
}

async function pumpEvents(
  { request, call, answer, signal }: Streaming,
  stream: EventStream,
  chunks: ChunkWriter,
): Promise<void> {
  let roles = "";
  for (let choice = 0; choice < (request.n ?? 1); choice++) roles += chunks.role(choice);
  stream.write(roles);
  let complete = false;
  for await (const event of answer.events) {
    call.observe(event);
    complete ||= event.type === "done";
    const text = chunkOf(event, chunks);
    if (text === "" || stream.write(text)) continue;
    await stream.drained();
    signal.throwIfAborted();
  }
  if (!complete) throw cutShort(answer.node);
}

/** A delta without text is a token inside a character: nothing to show unless it has scores. */
function chunkOf(event: EngineEvent, chunks: ChunkWriter): string {
  if (event.type === "finish") return chunks.finish(event.choice, event.reason);
  if (event.type !== "delta") return "";
  if (event.text === "" && !event.logprobs?.length) return "";
  return chunks.delta(event.choice, event.text, event.logprobs);
}

/** Events that end without `done` or `failed` are a truncated answer, never a success. */
function cutShort(node: string): AppError {
  return new AppError("worker_lost", "The worker was lost before the answer was finished.", {
    node,
  });
}
