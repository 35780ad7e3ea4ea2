import type { Registry } from "prom-client";
import { ReadMetric, type Sample } from "./read-metric.ts";

/**
 * A histogram by model whose observation costs an addition: prom-client's own builds and looks up a
 * label text each time. The text is built at a scrape.
 */
export class ModelHistogram {
  readonly #bounds: readonly number[];
  readonly #models = new Map<string, Distribution>();

  /** `bounds` ascend; each is the largest value of its bucket. */
  constructor(registry: Registry, name: string, help: string, bounds: readonly number[]) {
    this.#bounds = bounds;
    const models = this.#models;
    // A model without an observation has no lines.
    new ReadMetric(registry, { name, help, type: "histogram" }, function* () {
      for (const [model, distribution] of models) {
        yield* linesOf(name, model, bounds, distribution);
      }
    });
  }

  of(model: string): Distribution {
    let distribution = this.#models.get(model);
    if (!distribution) {
      distribution = this.unlisted();
      this.#models.set(model, distribution);
    }
    return distribution;
  }

  /** A distribution with the same buckets that no scrape shows. */
  unlisted(): Distribution {
    return new Distribution(this.#bounds);
  }

  remove(model: string): void {
    this.#models.delete(model);
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
): Sample[] {
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
