import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { describe, expect, it } from "vitest";
import { ModelHistogram } from "../model-histogram.ts";

/** An adapter that shows a registry's metrics elsewhere. */
export interface MetricsUnderTest {
  readonly title: string;
  /** What the other side has of the registry now: values by series, as `name{label="value"}`. */
  seen(registry: Registry): Promise<ReadonlyMap<string, number>>;
}

/** A series as the cases name it, whatever form the adapter has. */
export function seriesName(name: string, labels: Readonly<Record<string, string>>): string {
  const parts = Object.entries(labels).sort();
  return `${name}{${parts.map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(",")}}`;
}

/** What every adapter of metrics shows. */
export function metricsCases({ title, seen }: MetricsUnderTest): void {
  describe(title, () => {
    it("counters and gauges have their values, by labels of any characters", async () => {
      const registry = new Registry();
      const counter = new Counter({ ...named("calls_total", registry), labelNames: ["model"] });
      counter.inc({ model: "a" }, 3);
      counter.inc({ model: 'b "c"\n\\ ü' });
      const gauge = new Gauge(named("level", registry));
      gauge.set(-0.25);
      expect(Object.fromEntries(await seen(registry))).toEqual({
        'calls_total{model="a"}': 3,
        [seriesName("calls_total", { model: 'b "c"\n\\ ü' })]: 1,
        "level{}": -0.25,
      });
      counter.inc({ model: "a" });
      expect((await seen(registry)).get('calls_total{model="a"}')).toBe(4);
    });

    it("values that are no finite numbers stay what they are", async () => {
      const registry = new Registry();
      const gauge = new Gauge({ ...named("odd", registry), labelNames: ["of"] });
      const odd = { a: Number.NaN, b: Infinity, c: -Infinity, d: 2 ** 60 };
      for (const [of, value] of Object.entries(odd)) gauge.set({ of }, value);
      const found = await seen(registry);
      for (const [of, value] of Object.entries(odd)) {
        expect(found.get(seriesName("odd", { of })), of).toBe(value);
      }
    });

    it("histograms have their buckets, sums and counts", async () => {
      const registry = new Registry();
      const buckets = [0.1, 1, 10];
      const usual = new Histogram({ ...named("wait", registry), buckets, labelNames: ["q"] });
      for (const value of [0.05, 0.5, 0.6, 99]) usual.observe({ q: "x" }, value);
      const own = new ModelHistogram(registry, "first", "x", buckets).of("m");
      for (const value of [0.1, 5]) own.observe(value);
      const found = await seen(registry);
      const le = (name: string, labels: Record<string, string>) =>
        ["0.1", "1", "10", "+Inf"].map((bound) =>
          found.get(seriesName(`${name}_bucket`, { ...labels, le: bound })),
        );
      expect(le("wait", { q: "x" })).toEqual([1, 3, 3, 4]);
      expect(found.get('wait_sum{q="x"}')).toBeCloseTo(100.15);
      expect(found.get('wait_count{q="x"}')).toBe(4);
      expect(le("first", { model_name: "m" })).toEqual([1, 1, 2, 2]);
      expect(found.get('first_count{model_name="m"}')).toBe(2);
    });

    it("a registry without series is shown without any", async () => {
      const registry = new Registry();
      new Counter({ ...named("none_total", registry), labelNames: ["x"] });
      expect([...(await seen(registry))]).toEqual([]);
    });
  });
}

function named(name: string, registry: Registry) {
  return { name, help: "Of a test.", registers: [registry] };
}
