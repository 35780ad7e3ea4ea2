import type { Registry } from "prom-client";
import type { Log } from "./logger.ts";
import type { Sample } from "./read-metric.ts";
import type { OtlpMetricsSettings } from "./tracing/otlp-settings.ts";

/** What a metric of the registry answers when it is read. */
interface ReadMetricValues {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly values?: Iterable<Sample>;
}

type Labels = Sample["labels"];
const CUMULATIVE = 2;
const NANOSECONDS = 1_000_000n;

/** Sends the registry's metrics to a receiver of OTLP over HTTP, as JSON, until it is closed. */
export class OtlpMetrics {
  readonly #settings: OtlpMetricsSettings;
  readonly #registry: Registry;
  readonly #log: Pick<Log, "warn">;
  readonly #startedNano = nanoseconds(Date.now());
  readonly #timer: NodeJS.Timeout;
  #sending: Promise<void> | undefined;
  #isFailing = false;

  constructor(settings: OtlpMetricsSettings, registry: Registry, log: Pick<Log, "warn">) {
    this.#settings = settings;
    this.#registry = registry;
    this.#log = log;
    this.#timer = setInterval(() => void this.send(), settings.intervalMs);
    this.#timer.unref();
  }

  /** Sends what there is now; a receiver that is unreachable misses it, and gets the sums at the next time. */
  send(): Promise<void> {
    this.#sending ??= this.#send().finally(() => {
      this.#sending = undefined;
    });
    return this.#sending;
  }

  /** Sends once more, so that the last figures are not lost. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#sending;
    await this.send();
  }

  async #send(): Promise<void> {
    const { url, timeoutMs } = this.#settings;
    try {
      const reply = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(await this.#message()),
        signal: AbortSignal.timeout(timeoutMs),
      });
      await reply.body?.cancel();
      if (!reply.ok) throw new Error(`it answered ${reply.status}`);
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing)
        this.#log.warn({ url, error: String(error) }, "metrics are not received");
      this.#isFailing = true;
    }
  }

  async #message(): Promise<object> {
    const { service, instance } = this.#settings;
    const metrics = this.#registry.getMetricsAsArray() as unknown as readonly {
      get(): Promise<ReadMetricValues>;
    }[];
    const read = await Promise.all(metrics.map((metric) => metric.get()));
    const at = { startTimeUnixNano: this.#startedNano, timeUnixNano: nanoseconds(Date.now()) };
    const resource = {
      "service.namespace": "heddle",
      "service.name": service,
      "service.instance.id": instance,
    };
    const scope = {
      scope: { name: "heddle" },
      metrics: read.flatMap((each) => metricOf(each, at)),
    };
    const resourceMetrics = {
      resource: { attributes: attributesOf(resource) },
      scopeMetrics: [scope],
    };
    return { resourceMetrics: [resourceMetrics] };
  }
}

interface PointTimes {
  readonly startTimeUnixNano: string;
  readonly timeUnixNano: string;
}

function metricOf({ name, help, type, values = [] }: ReadMetricValues, at: PointTimes): object[] {
  const samples = [...values];
  if (samples.length === 0) return [];
  const head = { name, description: help };
  if (type === "histogram") {
    const dataPoints = histogramPoints(name, samples, at);
    return [{ ...head, histogram: { aggregationTemporality: CUMULATIVE, dataPoints } }];
  }
  const dataPoints = samples.map(({ labels, value }) => {
    return { ...at, attributes: attributesOf(labels), asDouble: doubleOf(value) };
  });
  if (type !== "counter") return [{ ...head, gauge: { dataPoints } }];
  return [{ ...head, sum: { aggregationTemporality: CUMULATIVE, isMonotonic: true, dataPoints } }];
}

interface HistogramPoint {
  readonly labels: Labels;
  /** Indexed by upper bound, each with those below it. */
  readonly buckets: (readonly [bound: number, count: number])[];
  sum: number;
  count: number;
}

/** One point of each set of labels; Prometheus has a line for each bucket, and counts them upwards. */
function histogramPoints(name: string, samples: readonly Sample[], at: PointTimes): object[] {
  const all = new Map<string, HistogramPoint>();
  for (const { metricName, labels: given, value } of samples) {
    const { le, ...labels } = given;
    const key = JSON.stringify(Object.entries(labels).sort());
    const found = all.get(key) ?? { labels, buckets: [], sum: 0, count: 0 };
    all.set(key, found);
    if (metricName === `${name}_sum`) found.sum = value;
    else if (metricName === `${name}_count`) found.count = value;
    else if (le !== undefined && le !== "+Inf") found.buckets.push([Number(le), value]);
  }
  return [...all.values()].map(({ labels, buckets, sum, count }) => {
    buckets.sort(([a], [b]) => a - b);
    const upTo = [...buckets.map(([, below]) => below), count];
    return {
      ...at,
      attributes: attributesOf(labels),
      count: String(count),
      sum: doubleOf(sum),
      bucketCounts: upTo.map((below, index) => String(below - (upTo[index - 1] ?? 0))),
      explicitBounds: buckets.map(([bound]) => bound),
    };
  });
}

function attributesOf(labels: Labels): object[] {
  return Object.entries(labels).map(([key, value]) => ({
    key,
    value: { stringValue: String(value) },
  }));
}

/** JSON has no numbers for these. */
function doubleOf(value: number): number | string {
  return Number.isFinite(value) ? value : String(value);
}

function nanoseconds(ms: number): string {
  return String(BigInt(ms) * NANOSECONDS);
}
