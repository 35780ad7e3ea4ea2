import type { Metric, Registry } from "prom-client";

/**
 * A histogram by model whose observation costs an addition: prom-client's own builds and looks up a
 * label text each time. The text is built at a scrape.
 */
export class ModelHistogram {
  readonly name: string;
  readonly help: string;
  readonly type = "histogram";
  readonly aggregator = "sum";
  readonly #bounds: readonly number[];
  readonly #models = new Map<string, Distribution>();

  /** `bounds` ascend; each is the largest value of its bucket. */
  constructor(registry: Registry, name: string, help: string, bounds: readonly number[]) {
    this.name = name;
    this.help = help;
    this.#bounds = bounds;
    // The registry uses only these members, but its type names four classes.
    registry.registerMetric(this as unknown as Metric);
  }

  of(model: string): Distribution {
    let distribution = this.#models.get(model);
    if (!distribution) {
      distribution = new Distribution(this.#bounds);
      this.#models.set(model, distribution);
    }
    return distribution;
  }

  /** Called by the registry; a model without an observation has no lines. */
  get(): Promise<object> {
    const { name, help, type, aggregator } = this;
    const values = [...this.#models].flatMap(([model, distribution]) =>
      linesOf(name, model, this.#bounds, distribution),
    );
    return Promise.resolve({ name, help, type, aggregator, values });
  }

  reset(): void {
    this.#models.clear();
  }
}

/** The counts of one model's buckets. */
export class Distribution {
  readonly #bounds: readonly number[];
  /** One more than the bounds: the last bucket has no upper bound. */
  readonly counts: Float64Array;
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] as number)) bucket += 1;
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
    this.sum += value;
  }
}

/** Buckets are cumulative in the text format. */
function linesOf(
  name: string,
  model: string,
  bounds: readonly number[],
  { counts, sum }: Distribution,
): object[] {
  const labels = { model_name: model };
  let count = 0;
  const buckets = [...counts].map((own, bucket) => {
    count += own;
    const le = bounds[bucket] ?? "+Inf";
    return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: count };
  });
  if (count === 0) return [];
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
