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
import type { InferenceAnswer } from "./dispatch/inference-port.ts";
import { largerTokens, PartTally, sumOfTokens, sumOfUsage } from "./parts/part-tally.ts";

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

/** A part of a call that is counted alone: a request to an engine. */
export interface CallPart {
  /** Counts one event. Throws the AppError of a `failed` one. */
  observe(event: EngineEvent): void;
  /** Answer tokens that turned out to be reasoning, over all choices. */
  reasoned(tokens: number): void;
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
  readonly #endReports: () => void;
  readonly #startedAtMs = performance.now();
  #overheadMs: number | undefined;
  #queuedMs: number | undefined;
  #firstTokenMs: number | undefined;
  #lastTokenAtMs = 0;
  readonly #tallies: PartTally[] = [];
  /** The only part of a call that is not divided. */
  #whole: CallPart | undefined;
  /** The tokens already counted in the metrics. */
  #counted: CallTokens = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
  /** Seconds between tokens, not yet recorded in the metrics. */
  #gaps: number[] = [];
  #answer: Pick<InferenceAnswer, "node"> | undefined;
  #span: OpenSpan | undefined;
  #hasBegun = false;
  #closed = false;

  constructor(parts: CallParts) {
    this.#parts = parts;
    this.#instruments = parts.accounting.metrics.of(parts.model.id);
    this.#instruments.waiting.inc();
    this.#endReports = parts.accounting.open(this);
  }

  /** The worker that answers, once one has accepted the call. */
  get node(): string | undefined {
    return this.#answer?.node;
  }

  /** The latest answer, whose worker may change. */
  answeredBy(answer: Pick<InferenceAnswer, "node">): void {
    this.#answer = answer;
  }

  /** The span that ends with the call. */
  tracedBy(span: OpenSpan | undefined): void {
    this.#span = span;
  }

  /** The span's header value; undefined where traces are off. */
  get traceparent(): string | undefined {
    return this.#span && traceParentOf(this.#span.context);
  }

  handedOver(overheadMs: number): void {
    this.#overheadMs = overheadMs;
  }

  /** A request to an engine. `sharesPrompt`: another part counts the tokens of its prompt. */
  part(sharesPrompt = false): CallPart {
    const tally = new PartTally(sharesPrompt);
    this.#tallies.push(tally);
    return {
      observe: (event) => this.#observe(event, tally),
      reasoned: (tokens) => tally.reasoned(tokens),
    };
  }

  /** As of the part that is the whole call. */
  reasoned(tokens: number): void {
    this.#whole ??= this.part();
    this.#whole.reasoned(tokens);
  }

  /** As of the part that is the whole call. Throws the AppError of a `failed` event. */
  observe(event: EngineEvent): void {
    this.#whole ??= this.part();
    this.#whole.observe(event);
  }

  #observe(event: EngineEvent, tally: PartTally): void {
    tally.add(event);
    if (event.type === "started") this.#onStarted(event);
    else if (event.type === "delta") this.#observeToken(event.tokens);
    else if (event.type === "failed") {
      throw this.#located(event.error.code, event.error.message, event.error.param);
    }
  }

  #onStarted(event: EngineEvent & { readonly type: "started" }): void {
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      this.#instruments.waiting.dec();
      this.#instruments.running.inc();
      this.#queuedMs = event.queuedMs;
    }
    const begun = this.#tallies.reduce((sum, tally) => sum + tally.begun, 0);
    if (begun < this.#parts.engineRequests || !this.#isPromptKnown) return;
    this.#parts.reservation.correct({
      promptTokens: this.#seen.promptTokens,
      completionTokens: this.#parts.reservedOutputTokens,
    });
  }

  get #isPromptKnown(): boolean {
    return this.#tallies.every(({ isPromptKnown }) => isPromptKnown);
  }

  /** The engines' count where they sent one, otherwise the tokens seen. */
  get usage(): Usage {
    return sumOfUsage(this.#tallies.map(({ usage }) => usage));
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
    (this.#hasBegun ? this.#instruments.running : this.#instruments.waiting).dec();
    this.#observeGaps();
    this.#observeTimes();
    const used = this.#used();
    this.#count(used);
    const { reservation, key } = this.#parts;
    reservation.finish(used);
    const row = {
      atMs: Date.now(),
      requestId: this.#parts.requestId,
      key: key.id,
      owner: reservation.owner === key.id ? undefined : reservation.owner,
      project: key.project ?? DEFAULT_PROJECT,
      model: this.#parts.model.id,
      isOwnModel: this.#parts.model.project === undefined ? undefined : true,
      node: this.node,
      ...used,
      cost: reservation.costOf(used),
      errorCode: error?.code,
      endUser: this.#parts.endUser,
      metadata: this.#parts.metadata,
      durationMs: performance.now() - this.#startedAtMs,
    };
    // Embeddings have no choices: as in vLLM they count as stopped.
    const finished = this.#tallies.flatMap(({ finishReasons }) => finishReasons);
    const reasons = finished.length > 0 ? finished : ["stop"];
    this.#endReports();
    this.#parts.accounting.record(row, reasons);
    const span = this.#span;
    const times = { queuedMs: this.#queuedMs, firstTokenMs: this.#firstTokenMs };
    if (span) endCallSpan(span, row, reasons, times, error);
  }

  get #seen(): CallTokens {
    return sumOfTokens(this.#tallies.map(({ seen }) => seen));
  }

  /** What is charged at the end. Where an upstream never counted the prompt it is the estimate. */
  #used(): CallTokens {
    const used = sumOfTokens(this.#tallies.map((tally) => tally.used));
    const isCounted = this.#isPromptKnown || this.#tallies.some(({ isReported }) => isReported);
    return isCounted ? used : { ...used, promptTokens: this.#parts.reservedPromptTokens };
  }

  #observeGaps(): void {
    for (const seconds of this.#gaps) this.#instruments.interTokenLatency.observe(seconds);
    this.#gaps = [];
  }

  /** Counters never decrease, also where an engine counts less than was seen. */
  #count(used: CallTokens): void {
    const before = this.#counted;
    this.#counted = largerTokens(before, used);
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
    return new AppError(code, message, { param, node: this.node, model: this.#parts.model.id });
  }
}
