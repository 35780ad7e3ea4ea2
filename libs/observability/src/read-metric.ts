import type { Metric, Registry } from "prom-client";

/** One line of a metric; its name is the metric's unless `metricName` is set. */
export interface Sample {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  readonly metricName?: string;
}

interface MetricHead {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
}

/** Called at each scrape. The samples are read one by one while their text is written. */
export type ReadSamples = () => Iterable<Sample> | Promise<Iterable<Sample>>;

/** A metric whose values are kept elsewhere: it is read, never set. */
export class ReadMetric {
  readonly name: string;
  readonly help: string;
  readonly type: MetricHead["type"];
  readonly aggregator = "sum";
  readonly #read: ReadSamples;

  constructor(registry: Registry, { name, help, type }: MetricHead, read: ReadSamples) {
    this.name = name;
    this.help = help;
    this.type = type;
    this.#read = read;
    // The registry uses only these members, but its type names four classes.
    registry.registerMetric(this as unknown as Metric);
  }

  /** Called by the registry. */
  async get(): Promise<object> {
    const { name, help, type, aggregator } = this;
    return { name, help, type, aggregator, values: await this.#read() };
  }

  /** Called by the registry; the values are not this metric's. */
  reset(): void {}
}
