import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import {
  type Engine,
  type EngineEventSink,
  type EngineInfo,
  type EngineLoad,
  type EngineRequest,
  type SubmitOptions,
  sequencesOf,
  type Usage,
} from "@heddle/contracts/engine";
import type { UpstreamSpec } from "@heddle/contracts/models/upstream-spec";
import { type DoneEvent, UpstreamCall } from "./upstream-call.ts";
import type { UpstreamConnection } from "./upstream-connection.ts";
import { UpstreamFault } from "./upstream-fault.ts";
import { UpstreamHealth } from "./upstream-health.ts";
import { type AnsweredRequest, answered, toUpstreamRequest } from "./upstream-request.ts";

const RETRY_BACKOFF = { baseMs: 200, maxMs: 5_000 };
/** An upstream that asks for a longer pause is not waited for. */
const MAX_RETRY_AFTER_MS = 20_000;

export interface UpstreamEngineOptions {
  readonly spec: UpstreamSpec;
  readonly info: EngineInfo;
  readonly connection: UpstreamConnection;
  readonly sink: EngineEventSink;
  readonly onDown: (reason: AppError) => void;
  readonly onRecovered: () => void;
  /** The resident memory of a server that runs on this machine. */
  readonly residentBytes?: () => number;
}

interface SaltedRequest {
  readonly request: AnsweredRequest;
  readonly cacheSalt: string;
}

interface LiveCall {
  readonly abort: AbortController;
  readonly sequences: number;
  readonly deadline: NodeJS.Timeout | undefined;
  readonly cacheSalt: string;
}

/** The engine port over an OpenAI-compatible server. */
export class UpstreamEngine implements Engine {
  readonly info: EngineInfo;
  readonly #options: UpstreamEngineOptions;
  readonly #health: UpstreamHealth;
  readonly #live = new Map<number, LiveCall>();
  #running = 0;
  #totals = { promptTokens: 0, cachedTokens: 0, generatedTokens: 0 };
  #restarts = 0;

  constructor(options: UpstreamEngineOptions) {
    this.info = options.info;
    this.#options = options;
    this.#health = new UpstreamHealth({
      probe: (signal) => this.#probe(signal),
      intervalMs: options.spec.probeIntervalMs,
      onDown: (reason) => {
        this.#restarts++;
        options.onDown(reason);
      },
      onRecovered: options.onRecovered,
    });
  }

  /** Resolves once it has generated a token; rejects with why it does not. */
  start(signal: AbortSignal): Promise<void> {
    return this.#health.start(signal);
  }

  submit(id: number, request: EngineRequest, options: SubmitOptions): void {
    const sequences = sequencesOf(request);
    const { maxConcurrency } = this.#options.spec;
    if (this.#running > 0 && this.#running + sequences > maxConcurrency) {
      const message = `the model's upstream gets ${maxConcurrency} sequences at once`;
      this.#fail(id, new AppError("overloaded", message));
      return;
    }
    const abort = new AbortController();
    const { deadlineMs } = options;
    const late = () => abort.abort(new AppError("deadline_exceeded", "the deadline has passed"));
    const deadline = deadlineMs > 0 ? setTimeout(late, deadlineMs) : undefined;
    const call = { abort, sequences, deadline, cacheSalt: options.cacheSalt };
    this.#live.set(id, call);
    this.#running += sequences;
    void this.#run(id, request, call);
  }

  cancel(id: number): void {
    this.#live.get(id)?.abort.abort(new AppError("cancelled", "the request was cancelled"));
  }

  load(): EngineLoad {
    return {
      running: this.#running,
      waiting: 0,
      maxSequences: this.#options.spec.maxConcurrency,
      maxQueued: 0,
      kvUsedTokens: 0,
      kvTokens: 0,
      ...this.#totals,
      residentBytes: this.#options.residentBytes?.() ?? 0,
      restarts: this.#restarts,
    };
  }

  /** Its calls fail with `reason`. */
  async close(reason = new AppError("unavailable", "the engine was unloaded")): Promise<void> {
    this.#health.close();
    for (const { abort } of this.#live.values()) abort.abort(reason);
    await this.#options.connection.close();
  }

  async #run(id: number, request: EngineRequest, call: LiveCall): Promise<void> {
    const result = await this.#outcome(id, request, call);
    clearTimeout(call.deadline);
    // Its room is free before its last event leaves, so that the next request finds it.
    this.#live.delete(id);
    this.#running -= call.sequences;
    if (result instanceof AppError) return this.#fail(id, result);
    this.#countTokens(result.usage);
    this.#options.sink([result]);
  }

  async #outcome(
    id: number,
    request: EngineRequest,
    call: LiveCall,
  ): Promise<DoneEvent | AppError> {
    try {
      const salted = { request: answered(request), cacheSalt: call.cacheSalt };
      const done = await this.#generate(id, salted, call.abort.signal, this.#options.sink);
      this.#health.onSuccess();
      return done;
    } catch (thrown) {
      const failure = toAppError(thrown);
      this.#health.onFailure(failure);
      return failure;
    }
  }

  /** Tries again only before the first byte of an answer. */
  async #generate(
    id: number,
    { request, cacheSalt }: SaltedRequest,
    signal: AbortSignal,
    emit: EngineEventSink,
  ): Promise<DoneEvent> {
    const { spec, connection } = this.#options;
    const work = toUpstreamRequest(request, spec, cacheSalt);
    let call = new UpstreamCall(id, request, spec);
    const run = () => {
      call = new UpstreamCall(id, request, spec);
      return call.run(connection, work, signal, emit);
    };
    return retry(run, {
      backoff: RETRY_BACKOFF,
      signal,
      maxTries: 1 + spec.maxRetries,
      isPassing: (error) =>
        error instanceof UpstreamFault &&
        error.isPassing &&
        !call.isStarted &&
        askedMs(error) <= MAX_RETRY_AFTER_MS,
      pauseMs: (error, backoffMs) => Math.max(askedMs(error), backoffMs),
    });
  }

  /** Generates one token, or one vector. */
  async #probe(signal: AbortSignal): Promise<void> {
    const request = probeRequest(this.#options.spec);
    const { usage } = await this.#generate(0, { request, cacheSalt: "" }, signal, () => undefined);
    const tokens = request.kind === "embed" ? usage.promptTokens : usage.completionTokens;
    if (tokens > 0) return;
    throw new UpstreamFault("engine_failed", "the model's upstream generates nothing", false);
  }

  #countTokens({ promptTokens, cachedTokens, completionTokens }: Usage): void {
    this.#totals = {
      promptTokens: this.#totals.promptTokens + promptTokens,
      cachedTokens: this.#totals.cachedTokens + cachedTokens,
      generatedTokens: this.#totals.generatedTokens + completionTokens,
    };
  }

  #fail(id: number, { code, message, param }: AppError): void {
    const error = param === undefined ? { code, message } : { code, message, param };
    this.#options.sink([{ type: "failed", id, error }]);
  }
}

/** How long the upstream asks to wait. */
function askedMs(error: unknown): number {
  return error instanceof UpstreamFault ? (error.retryAfterMs ?? 0) : 0;
}

function probeRequest({ probe }: UpstreamSpec): AnsweredRequest {
  const input = { kind: "text", text: "Hi" } as const;
  if (probe === "embeddings") return { kind: "embed", inputs: [input] };
  return {
    input: probe === "chat" ? { kind: "chat", messages: [{ role: "user", content: "Hi" }] } : input,
    sampling: { temperature: 1, topP: 1, presencePenalty: 0, frequencyPenalty: 0, logitBias: [] },
    choices: 1,
    maxTokens: 1,
    stop: [],
    format: "text",
  };
}
