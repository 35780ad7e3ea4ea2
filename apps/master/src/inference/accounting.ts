import type { InferenceMetrics } from "@heddle/observability/inference-metrics";

/** What one call used, written once when it ends, however it ended. No text of it is kept. */
export interface UsageRow {
  readonly atMs: number;
  readonly requestId: string;
  readonly key: string;
  readonly model: string;
  /** The worker that answered; absent where none was reached. */
  readonly node: string | undefined;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Absent for a call that succeeded. */
  readonly errorCode: string | undefined;
  /** The caller's own user, as it named one. */
  readonly endUser: string | undefined;
  /** The caller's own labels of the call. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly durationMs: number;
}

/** Where usage rows go besides the metrics: the ledger that bills are made of. */
export type UsageSink = (row: UsageRow) => void;

/** Tokens of one call, as far as they are known. */
export type CallTokens = Pick<UsageRow, "promptTokens" | "cachedTokens" | "completionTokens">;

/** A call under way, which the metrics ask for what it has used since they asked last. */
interface OpenCall {
  report(): void;
}

/**
 * Tokens are counted in the metrics while their call goes on, and in all exactly as its row keeps
 * them, so that a scraper sees the rate of long answers, and metrics and ledger agree.
 */
export class Accounting {
  readonly metrics: InferenceMetrics;
  readonly #sink: UsageSink;
  readonly #open = new Set<OpenCall>();

  constructor(metrics: InferenceMetrics, sink: UsageSink) {
    this.metrics = metrics;
    this.#sink = sink;
    metrics.onScrape(() => {
      for (const call of this.#open) call.report();
    });
  }

  /** The call reports at every scrape until its row is recorded. */
  open(call: OpenCall): void {
    this.#open.add(call);
  }

  /** Counts what was used beyond what has been counted. */
  count(model: string, used: CallTokens, counted: CallTokens): void {
    const instruments = this.metrics.of(model);
    const promptTokens = used.promptTokens - counted.promptTokens;
    instruments.promptTokens.inc(promptTokens);
    instruments.prefixQueries.inc(promptTokens);
    instruments.prefixHits.inc(used.cachedTokens - counted.cachedTokens);
    instruments.generatedTokens.inc(used.completionTokens - counted.completionTokens);
  }

  /** Ends the call, whose tokens are all counted. */
  record(call: OpenCall, row: UsageRow, finishReasons: readonly string[]): void {
    this.#open.delete(call);
    this.metrics.of(row.model).endToEndLatency.observe(row.durationMs / 1000);
    if (row.errorCode !== undefined) this.metrics.failed(row.model, row.errorCode);
    else for (const reason of finishReasons) this.metrics.succeeded(row.model, reason);
    this.#sink(row);
  }
}
