import { AppError } from "@heddle/base/errors";
import type { EngineEvent, Usage } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";
import type { ModelInstruments } from "@heddle/observability/inference-metrics";
import type { OpenSpan } from "@heddle/observability/tracing/span";
import { traceParentOf } from "@heddle/observability/tracing/trace-context";
import type { Caller } from "../http/identity/caller.ts";
import { type CallReservation, DEFAULT_PROJECT } from "../http/limits/call-reservation.ts";
import type { Accounting, CallTokens } from "./accounting.ts";
import { endCallSpan } from "./call-span.ts";

export interface CallParts {
  readonly requestId: string;
  readonly key: Pick<Caller, "id" | "project">;
  readonly model: ModelRecord;
  readonly reservation: CallReservation;
  readonly accounting: Accounting;
  readonly endUser: string | undefined;
  readonly metadata: Readonly<Record<string, string>> | undefined;
  /** Estimated before tokenization. */
  readonly reservedPromptTokens: number;
  /** Requests to engines that the call is split into. */
  readonly engineRequests: number;
  /** Output tokens reserved over all choices. */
  readonly reservedOutputTokens: number;
}

/** Token gaps are batched for the metrics: recording each alone costs more. */
const MAX_KEPT_GAPS = 64;

/**
 * One admitted call from start to end. It counts the engine's events, corrects the key's token
 * reservation, and writes exactly one usage row when it closes.
 */
export class AdmittedCall {
  readonly #parts: CallParts;
  readonly #instruments: ModelInstruments;
  readonly #startedAtMs = performance.now();
  #overheadMs: number | undefined;
  #queuedMs: number | undefined;
  #firstTokenMs: number | undefined;
  #lastTokenAtMs = 0;
  #promptTokens = 0;
  #cachedTokens = 0;
  #completionTokens = 0;
  #reasoningTokens = 0;
  /** The tokens already counted in the metrics. */
  #counted: CallTokens = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
  /** Seconds between tokens, not yet recorded in the metrics. */
  #gaps: number[] = [];
  #usage: Usage | undefined;
  #finishReasons: string[] = [];
  #node: string | undefined;
  #span: OpenSpan | undefined;
  /** Whether each engine has reported the prompt's tokens when it began; upstreams report them last. */
  #isPromptKnown = true;
  /** Requests that an engine has begun. */
  #begun = 0;
  #closed = false;

  constructor(parts: CallParts) {
    this.#parts = parts;
    this.#instruments = parts.accounting.metrics.of(parts.model.id);
    this.#instruments.waiting.inc();
    parts.accounting.open(this);
  }

  /** The worker that answers, once one has accepted the call. */
  get node(): string | undefined {
    return this.#node;
  }

  set node(node: string) {
    this.#node = node;
  }

  /** The span that ends with the call. */
  tracedBy(span: OpenSpan | undefined): void {
    this.#span = span;
  }

  /** Of its span; undefined where traces are off. */
  get traceparent(): string | undefined {
    return this.#span && traceParentOf(this.#span.context);
  }

  handedOver(overheadMs: number): void {
    this.#overheadMs = overheadMs;
  }

  /** Answer tokens that turned out to be reasoning, over all choices. */
  reasoned(tokens: number): void {
    this.#reasoningTokens += tokens;
  }

  /** Counts one event. Throws the AppError of a `failed` one. */
  observe(event: EngineEvent): void {
    switch (event.type) {
      case "started":
        this.#onStarted(event);
        return;
      case "delta":
        this.#completionTokens += event.tokens;
        this.#observeToken(event.tokens);
        return;
      case "finish":
        this.#finishReasons.push(event.reason);
        return;
      case "prompt":
      case "embedding":
      case "reading":
        return;
      case "done":
        this.#usage = sum(this.#usage, event.usage);
        return;
      case "failed":
        this.#usage = sum(this.#usage, event.error.usage);
        throw this.#located(event.error.code, event.error.message, event.error.param);
    }
  }

  #onStarted(event: EngineEvent & { readonly type: "started" }): void {
    if (++this.#begun === 1) {
      this.#instruments.waiting.dec();
      this.#instruments.running.inc();
      this.#queuedMs = event.queuedMs;
    }
    this.#promptTokens += event.promptTokens;
    this.#cachedTokens += event.cachedTokens;
    this.#isPromptKnown &&= event.promptTokens > 0;
    if (this.#begun < this.#parts.engineRequests || !this.#isPromptKnown) return;
    this.#parts.reservation.correct({
      promptTokens: this.#promptTokens,
      completionTokens: this.#parts.reservedOutputTokens,
    });
  }

  /** The engine's count if it sent one, otherwise the tokens seen. */
  get usage(): Usage {
    const reported: Usage = this.#usage ?? { ...this.#seen, reasoningTokens: 0 };
    // An upstream may count reasoning that it does not show.
    const reasoningTokens = Math.max(reported.reasoningTokens, this.#reasoningTokens);
    return { ...reported, reasoningTokens };
  }

  /** Updates the metrics with what is new since the last update. */
  report(): void {
    this.#count(this.#seen);
    this.#observeGaps();
  }

  /**
   * Releases the call's share of its key's limits and records its usage; later calls do nothing.
   */
  close(error: AppError | undefined): void {
    if (this.#closed) return;
    this.#closed = true;
    (this.#begun > 0 ? this.#instruments.running : this.#instruments.waiting).dec();
    this.#observeGaps();
    this.#observeTimes();
    // Includes tokens that were not streamed, as the end token. What was seen counts, even if the
    // engine reports less.
    this.#count(atLeast(this.#seen, this.#usage));
    if (!this.#isPromptKnown && !this.#usage) {
      this.#count({ ...this.#counted, promptTokens: this.#parts.reservedPromptTokens });
    }
    const { reservation, key } = this.#parts;
    reservation.finish(this.#counted);
    const row = {
      atMs: Date.now(),
      requestId: this.#parts.requestId,
      key: key.id,
      owner: reservation.owner === key.id ? undefined : reservation.owner,
      project: key.project ?? DEFAULT_PROJECT,
      model: this.#parts.model.id,
      node: this.#node,
      ...this.#counted,
      cost: reservation.costOf(this.#counted),
      errorCode: error?.code,
      endUser: this.#parts.endUser,
      metadata: this.#parts.metadata,
      durationMs: performance.now() - this.#startedAtMs,
    };
    // Embeddings have no choices: as in vLLM they count as stopped.
    const reasons = this.#finishReasons.length > 0 ? this.#finishReasons : ["stop"];
    this.#parts.accounting.record(this, row, reasons);
    const span = this.#span;
    const times = { queuedMs: this.#queuedMs, firstTokenMs: this.#firstTokenMs };
    if (span) endCallSpan(span, row, reasons, times, error);
  }

  get #seen(): CallTokens {
    return {
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      completionTokens: this.#completionTokens,
    };
  }

  #observeGaps(): void {
    for (const seconds of this.#gaps) this.#instruments.interTokenLatency.observe(seconds);
    this.#gaps = [];
  }

  /** Counters never decrease. */
  #count(used: CallTokens): void {
    const before = this.#counted;
    this.#counted = atLeast(before, used);
    this.#parts.accounting.count(this.#parts.model.id, this.#counted, before);
  }

  #observeToken(tokens: number): void {
    const now = performance.now();
    if (this.#firstTokenMs === undefined) {
      this.#firstTokenMs = now - this.#startedAtMs;
    } else if (tokens > 0) {
      this.#gaps.push((now - this.#lastTokenAtMs) / 1000 / tokens);
      if (this.#gaps.length >= MAX_KEPT_GAPS) this.report();
    }
    this.#lastTokenAtMs = now;
  }

  /** Recorded at the end of the call, to keep histograms out of the time to first token. */
  #observeTimes(): void {
    const { gatewayOverhead, queueTime, timeToFirstToken } = this.#instruments;
    if (this.#overheadMs !== undefined) gatewayOverhead.observe(this.#overheadMs / 1000);
    if (this.#queuedMs !== undefined) queueTime.observe(this.#queuedMs / 1000);
    if (this.#firstTokenMs !== undefined) timeToFirstToken.observe(this.#firstTokenMs / 1000);
  }

  #located(code: AppError["code"], message: string, param: string | undefined): AppError {
    return new AppError(code, message, { param, node: this.#node, model: this.#parts.model.id });
  }
}

function sum(one: Usage | undefined, other: Usage | undefined): Usage | undefined {
  if (!one || !other) return one ?? other;
  return {
    promptTokens: one.promptTokens + other.promptTokens,
    cachedTokens: one.cachedTokens + other.cachedTokens,
    completionTokens: one.completionTokens + other.completionTokens,
    reasoningTokens: one.reasoningTokens + other.reasoningTokens,
  };
}

function atLeast(tokens: CallTokens, others: CallTokens | undefined): CallTokens {
  if (!others) return tokens;
  return {
    promptTokens: Math.max(tokens.promptTokens, others.promptTokens),
    cachedTokens: Math.max(tokens.cachedTokens, others.cachedTokens),
    completionTokens: Math.max(tokens.completionTokens, others.completionTokens),
  };
}
