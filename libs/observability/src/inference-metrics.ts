import type { Registry } from "prom-client";
import { type Distribution, ModelHistogram } from "./model-histogram.ts";
import { ReadMetric, type Sample } from "./read-metric.ts";

/** A replica's engine load, as last reported by its worker. */
export interface ReplicaLoad {
  readonly deployment: string;
  readonly node: string;
  readonly running: number;
  readonly waiting: number;
}

/** The values of the gauges at a scrape. */
export interface ClusterLoad {
  readonly replicas: readonly ReplicaLoad[];
  /** Keyed by model id: the share of its deployment's KV cache in use, 0..1. */
  readonly kvUsage: ReadonlyMap<string, number>;
}

/** A counter of one model, read at each scrape: an increment costs an addition and no look-up. */
class Tally {
  value = 0;

  inc(by = 1): void {
    this.value += by;
  }

  dec(): void {
    this.value -= 1;
  }
}

/** The instruments of one model's calls. */
export interface ModelInstruments {
  readonly waiting: Tally;
  readonly running: Tally;
  readonly promptTokens: Tally;
  readonly generatedTokens: Tally;
  readonly prefixQueries: Tally;
  readonly prefixHits: Tally;
  readonly timeToFirstToken: Distribution;
  readonly interTokenLatency: Distribution;
  readonly endToEndLatency: Distribution;
  readonly queueTime: Distribution;
  readonly gatewayOverhead: Distribution;
  /** Completed calls, by finish reason. */
  readonly succeeded: Map<string, Tally>;
}

const LATENCY_BUCKETS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
  160,
];
const LONG_BUCKETS = [
  0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960,
];
const OVERHEAD_BUCKETS = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5];

type CounterName = "promptTokens" | "generatedTokens" | "prefixQueries" | "prefixHits";
type GaugeName = "running" | "waiting";
type HistogramName =
  | "timeToFirstToken"
  | "interTokenLatency"
  | "endToEndLatency"
  | "queueTime"
  | "gatewayOverhead";

const COUNTERS: readonly (readonly [CounterName, string, string])[] = [
  ["promptTokens", "vllm:prompt_tokens_total", "Prompt tokens processed."],
  ["generatedTokens", "vllm:generation_tokens_total", "Tokens generated."],
  [
    "prefixQueries",
    "vllm:prefix_cache_queries_total",
    "Prompt tokens looked up in the prefix cache.",
  ],
  ["prefixHits", "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache."],
];
const GAUGES: readonly (readonly [GaugeName, string, string])[] = [
  ["running", "vllm:num_requests_running", "Calls that an engine works on."],
  ["waiting", "vllm:num_requests_waiting", "Calls that wait for an engine."],
];

export interface InferenceMetricsOptions {
  /** Called by the gauges of replicas at each scrape. */
  readonly load: () => Promise<ClusterLoad>;
  /** Whether the model has series; what is counted of another one is dropped. */
  readonly isRegistered: (model: string) => boolean;
}

/**
 * A master's inference metrics under vLLM's names, which scrapers and dashboards know, and our own
 * under `heddle_`. The calls are this master's own; engine loads, of all masters' calls, are under
 * `heddle_replica_`.
 */
export class InferenceMetrics {
  readonly #models = new Map<string, ModelInstruments>();
  /** Keyed by model and error code; the model is empty for calls that named none. */
  readonly #failures = new Map<string, Map<string, Tally>>();
  readonly #scrapeListeners = new Set<() => void>();
  readonly #registry: Registry;
  readonly #isRegistered: (model: string) => boolean;
  readonly #histograms: Record<HistogramName, ModelHistogram>;

  constructor(registry: Registry, { load, isRegistered }: InferenceMetricsOptions) {
    this.#registry = registry;
    this.#isRegistered = isRegistered;
    // The first metric: its scrape callback updates the values that the others read.
    this.#successes();
    this.#failed();
    for (const [field, name, help] of COUNTERS) this.#ofModels("counter", field, name, help);
    this.#histograms = this.#latencies();
    for (const [field, name, help] of GAUGES) this.#ofModels("gauge", field, name, help);
    this.#loadGauges(load);
  }

  /** The instruments of a model; those of one that is not registered have no series. */
  of(model: string): ModelInstruments {
    const known = this.#models.get(model);
    if (known) return known;
    const isKept = this.#isRegistered(model);
    const histograms = this.#histograms;
    const distribution = (of: HistogramName) =>
      isKept ? histograms[of].of(model) : histograms[of].unlisted();
    const instruments: ModelInstruments = {
      waiting: new Tally(),
      running: new Tally(),
      promptTokens: new Tally(),
      generatedTokens: new Tally(),
      prefixQueries: new Tally(),
      prefixHits: new Tally(),
      timeToFirstToken: distribution("timeToFirstToken"),
      interTokenLatency: distribution("interTokenLatency"),
      endToEndLatency: distribution("endToEndLatency"),
      queueTime: distribution("queueTime"),
      gatewayOverhead: distribution("gatewayOverhead"),
      succeeded: new Map(),
    };
    if (isKept) this.#models.set(model, instruments);
    return instruments;
  }

  /** Drops the series of models that are no longer registered. Open calls of them count no more. */
  dropRemoved(): void {
    for (const model of new Set([...this.#models.keys(), ...this.#failures.keys()])) {
      if (model === "" || this.#isRegistered(model)) continue;
      this.#models.delete(model);
      this.#failures.delete(model);
      for (const histogram of Object.values(this.#histograms)) histogram.remove(model);
    }
  }

  /** Called before each scrape, so that open calls can add their usage. */
  onScrape(listener: () => void): void {
    this.#scrapeListeners.add(listener);
  }

  succeeded(model: string, reason: string): void {
    increment(this.of(model).succeeded, reason);
  }

  /** Counts a failed call; its model is empty if the call was refused before it named one. */
  failed(model: string, code: string): void {
    if (model !== "" && !this.#isRegistered(model)) return;
    const codes = this.#failures.get(model) ?? new Map<string, Tally>();
    this.#failures.set(model, codes);
    increment(codes, code);
  }

  #successes(): void {
    const models = this.#models;
    const name = "vllm:request_success_total";
    const help = "Calls answered in full, by finish reason.";
    function* samples(): Generator<Sample> {
      for (const [model, { succeeded }] of models) {
        for (const [reason, { value }] of succeeded) {
          yield { labels: { model_name: model, finished_reason: reason }, value };
        }
      }
    }
    new ReadMetric(this.#registry, { name, help, type: "counter" }, () => {
      for (const listener of this.#scrapeListeners) listener();
      return samples();
    });
  }

  #failed(): void {
    const failures = this.#failures;
    const name = "heddle_requests_failed_total";
    const help =
      "Calls that failed, by error code; `rate_limit_exceeded` are the 429s, `cancelled` the aborts.";
    new ReadMetric(this.#registry, { name, help, type: "counter" }, function* () {
      for (const [model, codes] of failures) {
        for (const [code, { value }] of codes) {
          yield { labels: { model_name: model, code }, value };
        }
      }
    });
  }

  #latencies(): Record<HistogramName, ModelHistogram> {
    return {
      timeToFirstToken: this.#histogram(
        "vllm:time_to_first_token_seconds",
        "Time to the first token.",
        LATENCY_BUCKETS,
      ),
      interTokenLatency: this.#histogram(
        "vllm:inter_token_latency_seconds",
        "Time between tokens.",
        LATENCY_BUCKETS,
      ),
      endToEndLatency: this.#histogram(
        "vllm:e2e_request_latency_seconds",
        "Time from receipt to the end of the answer.",
        LONG_BUCKETS,
      ),
      queueTime: this.#histogram(
        "vllm:request_queue_time_seconds",
        "Time a call waited for a slot in an engine.",
        LONG_BUCKETS,
      ),
      gatewayOverhead: this.#histogram(
        "heddle_gateway_overhead_seconds",
        "Time the master spent on a call before handing it to a worker.",
        OVERHEAD_BUCKETS,
      ),
    };
  }

  #loadGauges(load: () => Promise<ClusterLoad>): void {
    const name = "vllm:kv_cache_usage_perc";
    const help =
      "Share of the KV cache in use; 1 is full. Ids that share a deployment share the cache.";
    new ReadMetric(this.#registry, { name, help, type: "gauge" }, async () => {
      const { kvUsage } = await load();
      return mapped(kvUsage, ([model, value]) => ({ labels: { model_name: model }, value }));
    });
    const ofReplicas = [
      ["running", "heddle_replica_requests_running", "Sequences that a replica's engine runs."],
      ["waiting", "heddle_replica_requests_waiting", "Requests that wait in a replica's engine."],
    ] as const;
    for (const [field, name, help] of ofReplicas) {
      new ReadMetric(this.#registry, { name, help, type: "gauge" }, async () => {
        const { replicas } = await load();
        return mapped(replicas, ({ deployment, node, [field]: value }) => {
          return { labels: { deployment, node }, value };
        });
      });
    }
  }

  #ofModels(
    type: "counter" | "gauge",
    field: CounterName | GaugeName,
    name: string,
    help: string,
  ): void {
    new ReadMetric(this.#registry, { name, help, type }, () =>
      mapped(this.#models, ([model, instruments]) => {
        return { labels: { model_name: model }, value: instruments[field].value };
      }),
    );
  }

  #histogram(name: string, help: string, buckets: readonly number[]): ModelHistogram {
    return new ModelHistogram(this.#registry, name, help, buckets);
  }
}

function increment(tallies: Map<string, Tally>, key: string): void {
  const tally = tallies.get(key) ?? new Tally();
  tallies.set(key, tally);
  tally.inc();
}

function* mapped<Item>(
  items: Iterable<Item>,
  sampleOf: (item: Item) => Sample,
): Generator<Sample, void> {
  for (const item of items) yield sampleOf(item);
}
