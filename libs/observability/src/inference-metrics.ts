import { Counter, Gauge, Histogram, type Registry } from "prom-client";

/** What a replica's engine holds now, as its worker last reported it. */
export interface ReplicaLoad {
  readonly deployment: string;
  readonly node: string;
  readonly running: number;
  readonly waiting: number;
}

/** What the gauges are set to at a scrape. */
export interface ClusterLoad {
  readonly replicas: readonly ReplicaLoad[];
  /** By model id: the share of its deployment's KV cache in use, 0..1. */
  readonly kvUsage: ReadonlyMap<string, number>;
}

/** The instruments of one model, with its label bound, so that a token costs no label look-up. */
export interface ModelInstruments {
  readonly waiting: Gauge.Internal<"model_name">;
  readonly running: Gauge.Internal<"model_name">;
  readonly promptTokens: Counter.Internal;
  readonly generatedTokens: Counter.Internal;
  readonly prefixQueries: Counter.Internal;
  readonly prefixHits: Counter.Internal;
  readonly timeToFirstToken: Histogram.Internal<"model_name">;
  readonly interTokenLatency: Histogram.Internal<"model_name">;
  readonly endToEndLatency: Histogram.Internal<"model_name">;
  readonly queueTime: Histogram.Internal<"model_name">;
  readonly gatewayOverhead: Histogram.Internal<"model_name">;
}

const LATENCY_BUCKETS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
  160,
];
const LONG_BUCKETS = [
  0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960,
];
const OVERHEAD_BUCKETS = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5];

/**
 * The inference metrics of a master: vLLM's names, which scrapers and dashboards know, and our own
 * under `heddle_`. The calls of a model are this master's own; what engines hold, whoever sent it,
 * stands under `heddle_replica_`. `load` is asked at every scrape.
 */
export class InferenceMetrics {
  readonly #models = new Map<string, ModelInstruments>();
  readonly #scrapeListeners = new Set<() => void>();
  readonly #registry: Registry;
  readonly #success: Counter<"model_name" | "finished_reason">;
  readonly #rejected: Counter<"model_name" | "code">;
  readonly #histograms: Record<string, Histogram<"model_name">>;
  readonly #counters: Record<string, Counter<"model_name">>;
  readonly #gauges: Record<string, Gauge<"model_name">>;

  constructor(registry: Registry, load: () => ClusterLoad) {
    this.#registry = registry;
    const scraped = (): void => {
      for (const listener of this.#scrapeListeners) listener();
    };
    this.#success = new Counter({
      name: "vllm:request_success_total",
      help: "Calls answered in full, by finish reason.",
      labelNames: ["model_name", "finished_reason"],
      registers: [registry],
      // It is the first of them that a scrape collects.
      collect: scraped,
    });
    this.#rejected = this.#counter(
      "heddle_requests_failed_total",
      "Calls that failed, by error code; `rate_limit_exceeded` are the 429s, `cancelled` the aborts.",
      ["model_name", "code"],
    );
    this.#counters = {
      promptTokens: this.#counter("vllm:prompt_tokens_total", "Prompt tokens processed.", [
        "model_name",
      ]),
      generatedTokens: this.#counter("vllm:generation_tokens_total", "Tokens generated.", [
        "model_name",
      ]),
      prefixQueries: this.#counter(
        "vllm:prefix_cache_queries_total",
        "Prompt tokens looked up in the prefix cache.",
        ["model_name"],
      ),
      prefixHits: this.#counter(
        "vllm:prefix_cache_hits_total",
        "Prompt tokens found in the prefix cache.",
        ["model_name"],
      ),
    };
    this.#histograms = this.#latencies();
    this.#gauges = {
      running: this.#gauge("vllm:num_requests_running", "Calls that an engine works on."),
      waiting: this.#gauge("vllm:num_requests_waiting", "Calls that wait for an engine."),
    };
    this.#loadGauges(load);
  }

  /** The instruments of a registered model; never call it with a name that a client made up. */
  of(model: string): ModelInstruments {
    const known = this.#models.get(model);
    if (known) return known;
    const bound: Record<
      string,
      Counter.Internal | Gauge.Internal<"model_name"> | Histogram.Internal<"model_name">
    > = {};
    for (const [name, counter] of Object.entries(this.#counters))
      bound[name] = counter.labels(model);
    for (const [name, gauge] of Object.entries(this.#gauges)) bound[name] = gauge.labels(model);
    for (const [name, histogram] of Object.entries(this.#histograms))
      bound[name] = histogram.labels(model);
    const instruments = bound as unknown as ModelInstruments;
    this.#models.set(model, instruments);
    return instruments;
  }

  /** Calls back before each scrape, so that what calls under way have used is told by then. */
  onScrape(listener: () => void): void {
    this.#scrapeListeners.add(listener);
  }

  succeeded(model: string, reason: string): void {
    this.#success.inc({ model_name: model, finished_reason: reason });
  }

  /** Counts a failed call; its model is empty where the call was refused before it named one. */
  failed(model: string, code: string): void {
    this.#rejected.inc({ model_name: model, code });
  }

  #latencies(): Record<string, Histogram<"model_name">> {
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

  #loadGauges(load: () => ClusterLoad): void {
    const registers = [this.#registry];
    new Gauge({
      name: "vllm:kv_cache_usage_perc",
      help: "Share of the KV cache in use; 1 is full. Ids that share a deployment share the cache.",
      labelNames: ["model_name"],
      registers,
      collect() {
        this.reset();
        for (const [model, usage] of load().kvUsage) this.set({ model_name: model }, usage);
      },
    });
    const ofReplicas = [
      ["running", "heddle_replica_requests_running", "Sequences that a replica's engine runs."],
      ["waiting", "heddle_replica_requests_waiting", "Requests that wait in a replica's engine."],
    ] as const;
    for (const [field, name, help] of ofReplicas) {
      new Gauge({
        name,
        help,
        labelNames: ["deployment", "node"],
        registers,
        collect() {
          this.reset();
          for (const replica of load().replicas) {
            const { deployment, node } = replica;
            this.set({ deployment, node }, replica[field]);
          }
        },
      });
    }
  }

  #counter<L extends string>(name: string, help: string, labelNames: L[]): Counter<L> {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }

  #histogram(name: string, help: string, buckets: number[]): Histogram<"model_name"> {
    return new Histogram({
      name,
      help,
      labelNames: ["model_name"],
      buckets,
      registers: [this.#registry],
    });
  }

  #gauge(name: string, help: string): Gauge<"model_name"> {
    return new Gauge({ name, help, labelNames: ["model_name"], registers: [this.#registry] });
  }
}
