import { createHistogram, type RecordableHistogram } from "node:perf_hooks";
import { Gauge, type Registry } from "prom-client";

/** Sampling interval: twice a second detects a busy loop at negligible cost. */
const SAMPLE_EVERY_MS = 500;
const NANOSECONDS_PER_MS = 1e6;
const SECONDS_PER_NANOSECOND = 1e-9;

/**
 * prom-client's metric names, which dashboards know, and the statistic of each since the last
 * scrape.
 */
const STATISTICS: readonly (readonly [string, string, (lags: RecordableHistogram) => number])[] = [
  ["min", "The least", (lags) => lags.min],
  ["max", "The greatest", (lags) => lags.max],
  ["mean", "The mean", (lags) => lags.mean],
  ["stddev", "The standard deviation of the", (lags) => lags.stddev],
  ["p50", "The 50th percentile of the", (lags) => lags.percentile(50)],
  ["p90", "The 90th percentile of the", (lags) => lags.percentile(90)],
  ["p99", "The 99th percentile of the", (lags) => lags.percentile(99)],
];

/**
 * Registers the delay of this process's timers under prom-client's names in place of its gauges,
 * which include the 10 ms between their samples.
 */
export function measureEventLoopLag(registry: Registry): void {
  const lags = createHistogram();
  let dueMs = performance.now() + SAMPLE_EVERY_MS;
  const sample = (): void => {
    const nowMs = performance.now();
    lags.record(Math.max(1, Math.round((nowMs - dueMs) * NANOSECONDS_PER_MS)));
    dueMs = nowMs + SAMPLE_EVERY_MS;
  };
  setInterval(sample, SAMPLE_EVERY_MS).unref();
  STATISTICS.forEach(([statistic, what, of], i) => {
    const name = `nodejs_eventloop_lag_${statistic}_seconds`;
    registry.removeSingleMetric(name);
    new Gauge({
      name,
      help: `${what} delay of a timer since the last scrape, of two samples a second.`,
      registers: [registry],
      collect() {
        this.set(lags.count === 0 ? 0 : of(lags) * SECONDS_PER_NANOSECOND);
        // Collected in this order: the last one starts the next scrape's samples.
        if (i === STATISTICS.length - 1) lags.reset();
      },
    });
  });
}
