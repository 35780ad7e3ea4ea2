import type { ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import { AppError, toAppError } from "@heddle/base/errors";
import { type CallPriority, priorityNumber } from "@heddle/contracts/call-priority";
import type { ModelRecord } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { callIsAbout } from "../control-plane/event-log/audit-call.ts";
import type { CallerRequest } from "../http/access.ts";
import { envelopeBody } from "../http/error-reply.ts";
import { EventStream } from "../http/event-stream.ts";
import { requestCaller } from "../http/identity/caller.ts";
import { CallLimiter } from "../http/limits/call-limiter.ts";
import { ModelCatalog } from "../models/model-catalog.ts";
import type { InferenceCall } from "../nodes/replicas/ready-replica.ts";
import { Accounting } from "./accounting.ts";
import { withAdapter, withKeyDefaults } from "./adapted-request.ts";
import { CacheSalts } from "./cache-salts.ts";
import { AdmittedCall } from "./call.ts";
import { priorityOfRequest } from "./call-priority.ts";
import { openCallSpan } from "./call-span.ts";
import {
  CallWait,
  INFERENCE_DISPATCH,
  type InferenceAnswer,
  type InferenceDispatch,
} from "./dispatch/inference-port.ts";
import { InFlight, shuttingDown } from "./in-flight.ts";
import { waitComment, waitHeaders } from "./wait-signs.ts";

const PIECE_CHARACTERS = 256 * 1024;

/** Output tokens reserved per choice for a call without a limit. */
const DEFAULT_OUTPUT_TOKENS = 4096;

/** What differs between the streams of APIs. */
export interface StreamFormat {
  /** After the last event of a complete answer. */
  readonly end: string;
  /** A comment if absent. */
  readonly heartbeat?: string;
  /** The last event of an answer that failed. */
  readonly failure: (error: AppError, requestId: string) => string;
}

const OPENAI_STREAM: StreamFormat = {
  end: "data: [DONE]\n\n",
  failure: (error, requestId) => errorEvent(envelopeBody(error, requestId)),
};

/** An event named `error`. */
export function errorEvent(body: string): string {
  return `event: error\ndata: ${body}\n\n`;
}

interface StreamTimes {
  /** Heartbeat interval of a silent stream; also the time after which a waiting one opens. */
  readonly heartbeatMs: number;
  /** Interval at which the stream of a waiting call shows its place in the queue. */
  readonly progressMs: number;
  /** How long a client may read nothing of its stream. */
  readonly stallMs: number;
}

interface InferenceParts {
  readonly models: ModelCatalog;
  readonly limits: CallLimiter;
  readonly accounting: Accounting;
  readonly inFlight: InFlight;
  readonly dispatch: InferenceDispatch;
  /** The maximum duration of a call, its answer included. */
  readonly deadlineMs: number;
  readonly streams: StreamTimes;
}

/** What a parsed request asks for. */
interface Wanted {
  readonly model: ModelRecord;
  /** Estimated before tokenization. */
  readonly promptTokens: number;
  /** Reserved over all choices. */
  readonly outputTokens: number;
  /** Requests to engines that the call is split into; 1 by default. */
  readonly engineRequests?: number;
  /** The tier in the body, of endpoints that have one. */
  readonly tier?: Parameters<typeof priorityOfRequest>[1];
  readonly endUser?: string | undefined;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** The output that a call asks for. */
interface AskedOutput {
  readonly model: ModelRecord;
  /** The most tokens of each choice; undefined if the request sets none. */
  readonly asked: number | undefined;
  readonly promptTokens: number;
  readonly choices: number;
}

/** A call whose key permits it. */
export interface PermittedCall {
  readonly model: ModelRecord;
  readonly call: AdmittedCall;
  readonly priority: CallPriority;
  readonly wait: CallWait;
  /** The key's limits, for the answer. */
  readonly headers: Record<string, string>;
}

/** A request for an engine; `later` orders those of one priority. */
type EngineWork = Pick<InferenceCall, "request" | "place" | "mayHold"> & {
  readonly later?: number;
};

/** The frame of every inference endpoint: limits, deadline, hang-ups, failures and accounting. */
export class InferenceCalls {
  readonly parts: InferenceParts;
  @Inject(CacheSalts) private readonly salts!: CacheSalts;

  constructor(
    @Inject(ModelCatalog) models: ModelCatalog,
    @Inject(CallLimiter) limits: CallLimiter,
    @Inject(Accounting) accounting: Accounting,
    @Inject(InFlight) inFlight: InFlight,
    @Inject(INFERENCE_DISPATCH) dispatch: InferenceDispatch,
    @Inject(MASTER_CONFIG) config: Pick<MasterConfig, "deadlineMs" | "fixedTimes">,
  ) {
    const { deadlineMs, fixedTimes } = config;
    const { streamHeartbeatMs: heartbeatMs, streamProgressMs: progressMs } = fixedTimes;
    this.parts = {
      models,
      limits,
      accounting,
      inFlight,
      dispatch,
      deadlineMs,
      streams: { heartbeatMs, progressMs, stallMs: fixedTimes.streamStallMs },
    };
  }

  /**
   * Answers a request: `prepare` parses and admits it, `run` answers and resolves with the failure
   * of a started answer. Throws an AppError only before anything of the answer was sent.
   */
  async answer<Prepared extends PermittedCall>(
    reply: FastifyReply,
    prepare: (abort: AbortController) => Prepared | Promise<Prepared>,
    run: (prepared: Prepared, signal: AbortSignal) => Promise<AppError | undefined>,
  ): Promise<void> {
    const abort = this.#enter(reply);
    try {
      const prepared = await prepare(abort);
      await this.#run(reply, prepared, abort, run);
    } finally {
      this.parts.inFlight.leave(abort);
    }
  }

  /**
   * Starts a call that continues without its client: `prepare` admits it, `run` does its work, and
   * `fail` gets the failure of it.
   */
  async detach<Prepared extends PermittedCall>(
    reply: FastifyReply,
    prepare: (abort: AbortController) => Promise<Prepared>,
    run: (prepared: Prepared, signal: AbortSignal) => Promise<void>,
    fail: (prepared: Prepared, failure: AppError) => Promise<void>,
  ): Promise<Prepared> {
    const abort = this.#enter(reply);
    try {
      const prepared = await prepare(abort);
      prepared.call.handedOver(reply.elapsedTime);
      void this.#runDetached(prepared, abort, run, fail).finally(() =>
        this.parts.inFlight.leave(abort),
      );
      return prepared;
    } catch (thrown) {
      this.parts.inFlight.leave(abort);
      throw thrown;
    }
  }

  async #runDetached<Prepared extends PermittedCall>(
    prepared: Prepared,
    abort: AbortController,
    run: (prepared: Prepared, signal: AbortSignal) => Promise<void>,
    fail: (prepared: Prepared, failure: AppError) => Promise<void>,
  ): Promise<void> {
    const release = endAfter(abort, this.parts.deadlineMs);
    let failure: AppError | undefined;
    try {
      await run(prepared, abort.signal);
    } catch (thrown) {
      failure = underId(prepared.model, this.#failureOf(thrown, abort.signal));
      await fail(prepared, failure);
    } finally {
      release();
      prepared.call.close(failure);
    }
  }

  /**
   * Counts the call for its model and reserves its tokens. Throws `rate_limit_exceeded` or
   * `insufficient_quota` where a limit has too few left.
   */
  async permit(http: CallerRequest, reply: FastifyReply, wanted: Wanted): Promise<PermittedCall> {
    const { limits, accounting } = this.parts;
    const { reservation } = http;
    const caller = requestCaller(http);
    if (!reservation) throw new Error("no call gets here without a reservation");
    const { model, promptTokens, outputTokens, engineRequests = 1 } = wanted;
    const priority = priorityOfRequest(http, wanted.tier);
    try {
      const tokens = { promptTokens, completionTokens: outputTokens };
      await limits.reserve(reservation, model, tokens);
    } catch (thrown) {
      reply.headers(limits.headersOf(caller));
      accounting.metrics.failed(model.id, toAppError(thrown).code);
      throw thrown;
    }
    const headers = reservation.headers();
    const call = new AdmittedCall({
      requestId: http.id,
      key: caller,
      model,
      accounting,
      reservation,
      engineRequests,
      metadata: wanted.metadata,
      endUser: wanted.endUser,
      reservedPromptTokens: promptTokens,
      reservedOutputTokens: outputTokens,
    });
    call.tracedBy(openCallSpan(http.url, model));
    return { model, call, headers, priority, wait: new CallWait() };
  }

  /** The model that the request names, if its caller may use it. */
  resolve(http: CallerRequest, id: string): ModelRecord {
    const model = this.parts.models.resolve(id, requestCaller(http));
    callIsAbout(`models/${model.id}`);
    return model;
  }

  /**
   * The output limit of each choice. A key with a token limit gets one in any case, because an
   * unlimited call could exceed its reservation.
   */
  boundOutput(
    http: CallerRequest,
    { model, asked, promptTokens, choices }: AskedOutput,
  ): number | undefined {
    const caller = requestCaller(http);
    if (asked !== undefined) return asked;
    const affordable = this.parts.limits.affordableOutput(caller, model, promptTokens);
    if (affordable === undefined) return undefined;
    return Math.max(1, Math.min(DEFAULT_OUTPUT_TOKENS, Math.floor(affordable / choices)));
  }

  /** Sends a request to a replica; resolves when the replica has begun. */
  async start(
    http: CallerRequest,
    { model, call, wait, ...permitted }: PermittedCall,
    { request, later, place, mayHold }: EngineWork,
    signal: AbortSignal,
  ): Promise<InferenceAnswer> {
    const { dispatch, deadlineMs } = this.parts;
    const { id: fairKey, project, deterministic } = requestCaller(http);
    const answer = await dispatch.start(
      {
        requestId: http.id,
        deployment: model.deployment,
        request: withAdapter(withKeyDefaults(request, deterministic), model),
        fairKey,
        cacheSalt: this.salts.of(project),
        deadlineMs,
        priority: priorityNumber(permitted.priority, later),
        place,
        mayHold,
        traceparent: call.traceparent,
      },
      signal,
      wait,
    );
    call.answeredBy(answer);
    return answer;
  }

  /** Sends a whole answer. */
  send(http: CallerRequest, reply: FastifyReply, permitted: PermittedCall, body: string): void {
    reply.hijack();
    reply.raw.writeHead(200, {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(body),
      ...headersOf(permitted, http.id),
    });
    reply.raw.end(body);
  }

  /**
   * Sends a large answer in pieces: neither its text nor this turn of the event loop is long.
   * Resolves with the failure, if any.
   */
  async sendPieces(
    http: CallerRequest,
    reply: FastifyReply,
    permitted: PermittedCall,
    pieces: Iterable<string>,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    reply.hijack();
    reply.raw.writeHead(200, {
      "content-type": "application/json; charset=utf-8",
      ...headersOf(permitted, http.id),
    });
    try {
      await pipeline(Readable.from(joinedPieces(pieces)), reply.raw, { signal });
      return undefined;
    } catch {
      // The head is sent: a body that ends early is the only sign left.
      reply.raw.destroy();
      return signal.aborted ? toAppError(signal.reason) : hungUp();
    }
  }

  /**
   * Streams an answer: `pump` writes its events and returns the last ones. Throws only before the
   * head is sent. After that, as for a heartbeat during a long wait, a failure is an event, and
   * the format's end is omitted.
   */
  async stream(
    http: CallerRequest,
    reply: FastifyReply,
    permitted: PermittedCall,
    signal: AbortSignal,
    pump: (stream: EventStream) => Promise<string>,
    format: StreamFormat = OPENAI_STREAM,
  ): Promise<AppError | undefined> {
    const { streams } = this.parts;
    const stream = new EventStream(reply.raw, {
      heartbeatMs: streams.heartbeatMs,
      heartbeat: format.heartbeat,
      stallMs: streams.stallMs,
      onOpen: () => {
        reply.hijack();
        return headersOf(permitted, http.id);
      },
    });
    const { wait } = permitted;
    wait.watch(() => stream.comment(streams.progressMs, () => waitComment(wait)));
    try {
      stream.end((await pump(stream)) + format.end);
      return undefined;
    } catch (thrown) {
      if (!stream.isOpen) {
        stream.abandon();
        throw thrown;
      }
      const failure = underId(permitted.model, this.#failureOf(thrown, signal));
      stream.end(format.failure(failure, http.id));
      // A client that does not read gets no error event; its pending data is dropped.
      if (failure.code === "request_timeout") reply.raw.destroy();
      return failure;
    }
  }

  /** Checked before the body is parsed: a call refused here has no model yet. */
  #enter({ request }: FastifyReply): AbortController {
    try {
      return this.parts.inFlight.enter((request.body as Buffer | undefined)?.byteLength);
    } catch (thrown) {
      this.parts.accounting.metrics.failed("", toAppError(thrown).code);
      throw thrown;
    }
  }

  async #run<Prepared extends PermittedCall>(
    reply: FastifyReply,
    prepared: Prepared,
    abort: AbortController,
    run: (prepared: Prepared, signal: AbortSignal) => Promise<AppError | undefined>,
  ): Promise<void> {
    const release = abortOnCloseOrDeadline(abort, reply.raw, this.parts.deadlineMs);
    let failure: AppError | undefined;
    try {
      prepared.call.handedOver(reply.elapsedTime);
      failure = await run(prepared, abort.signal);
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
    const isShutdown = failure.code === "worker_lost" && this.parts.inFlight.closing;
    return isShutdown ? shuttingDown() : failure;
  }
}

/** What names the computer of an answer: deployment, adapter, and whether it is a stand-in. */
export function fingerprintOf(model: ModelRecord): string {
  const { deployment, adapter, standIn } = model;
  const name = adapter ? `${deployment}+${adapter.weights.key}` : deployment;
  return standIn ? `${name} (stand-in)` : name;
}

/** Events that end without `done` or `failed` are a truncated answer, never a success. */
export function cutShort(node: string): AppError {
  return new AppError("worker_lost", "The worker was lost before the answer was finished.", {
    node,
  });
}

/** The headers of an answer; without the node if a stream opens before a worker accepts it. */
function headersOf(
  { headers, call, wait }: PermittedCall,
  requestId: string,
): Record<string, string> {
  const node = call.node === undefined ? undefined : { "x-heddle-node": call.node };
  return { ...headers, ...waitHeaders(wait), "x-request-id": requestId, ...node };
}

/**
 * Aborts the call when its client disconnects or its time has passed. Returns the function that stops
 * watching.
 */
function abortOnCloseOrDeadline(
  abort: AbortController,
  raw: ServerResponse,
  deadlineMs: number,
): () => void {
  const onClose = (): void => {
    if (!raw.writableFinished) abort.abort(hungUp());
  };
  const release = endAfter(abort, deadlineMs);
  raw.on("close", onClose);
  if (raw.destroyed) onClose();
  return () => {
    release();
    raw.off("close", onClose);
  };
}

function endAfter(abort: AbortController, deadlineMs: number): () => void {
  const timer = setTimeout(() => {
    const message = `The answer was not finished within ${deadlineMs} ms.`;
    abort.abort(new AppError("deadline_exceeded", message));
  }, deadlineMs);
  return () => clearTimeout(timer);
}

function hungUp(): AppError {
  return new AppError("cancelled", "The client closed the connection.");
}

/** Each of some size, and a turn of the event loop between two. */
async function* joinedPieces(pieces: Iterable<string>): AsyncGenerator<string, void> {
  let text = "";
  for (const piece of pieces) {
    text += piece;
    if (text.length < PIECE_CHARACTERS) continue;
    yield text;
    text = "";
    await nextTurn();
  }
  yield text;
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
