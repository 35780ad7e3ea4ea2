import { ShortLivedSet } from "@heddle/base/collections/short-lived-set";
import type { InferenceMetrics } from "@heddle/observability/inference-metrics";
import type { UsageRow } from "../usage/usage-row.ts";

/** Receives usage rows beside the metrics: the ledger for billing. */
export type UsageSink = (row: UsageRow) => void;

/** Tokens of one call, as far as known. */
export type CallTokens = Pick<UsageRow, "promptTokens" | "cachedTokens" | "completionTokens">;

/** An open call, which the metrics poll for its usage. */
interface MeasuredCall {
  report(): void;
}

/**
 * Counts tokens in the metrics while their call continues, and in total exactly as in its row. So
 * scrapers see the rate of long answers, and metrics and ledger agree.
 */
export class Accounting {
  readonly metrics: InferenceMetrics;
  readonly #sink: UsageSink;
  readonly #open = new ShortLivedSet<MeasuredCall>();

  constructor(metrics: InferenceMetrics, sink: UsageSink) {
    this.metrics = metrics;
    this.#sink = sink;
    metrics.onScrape(() => {
      for (const call of this.#open) call.report();
    });
  }

  /** The call reports at every scrape until it calls the function. */
  open(call: MeasuredCall): () => void {
    return this.#open.add(call);
  }

  /** Adds the usage that is not counted yet. */
  count(model: string, used: CallTokens, counted: CallTokens): void {
    const instruments = this.metrics.of(model);
    const promptTokens = used.promptTokens - counted.promptTokens;
    instruments.promptTokens.inc(promptTokens);
    instruments.prefixQueries.inc(promptTokens);
    instruments.prefixHits.inc(used.cachedTokens - counted.cachedTokens);
    instruments.generatedTokens.inc(used.completionTokens - counted.completionTokens);
  }

  /** Records a call that has ended, whose tokens are all counted. */
  record(row: UsageRow, finishReasons: readonly string[]): void {
    this.metrics.of(row.model).endToEndLatency.observe(row.durationMs / 1000);
    if (row.errorCode !== undefined) this.metrics.failed(row.model, row.errorCode);
    else for (const reason of finishReasons) this.metrics.succeeded(row.model, reason);
    this.#sink(row);
  }
}
