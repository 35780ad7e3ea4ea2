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
  readonly durationMs: number;
}

/** Where usage rows go besides the metrics: the ledger that bills are made of. */
export type UsageSink = (row: UsageRow) => void;

/** Rows are counted in the metrics exactly as they are kept, so that the two always agree. */
export class Accounting {
  readonly metrics: InferenceMetrics;
  readonly #sink: UsageSink;

  constructor(metrics: InferenceMetrics, sink: UsageSink) {
    this.metrics = metrics;
    this.#sink = sink;
  }

  record(row: UsageRow, finishReasons: readonly string[]): void {
    const instruments = this.metrics.of(row.model);
    instruments.promptTokens.inc(row.promptTokens);
    instruments.prefixQueries.inc(row.promptTokens);
    instruments.prefixHits.inc(row.cachedTokens);
    instruments.generatedTokens.inc(row.completionTokens);
    instruments.endToEndLatency.observe(row.durationMs / 1000);
    if (row.errorCode !== undefined) this.metrics.failed(row.model, row.errorCode);
    else for (const reason of finishReasons) this.metrics.succeeded(row.model, reason);
    this.#sink(row);
  }
}
