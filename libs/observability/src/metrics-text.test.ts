// holds: ops-metrics-text

import { StepQueue } from "@heddle/base/async/step-queue";
import fc from "fast-check";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { expect, test } from "vitest";
import { MetricsText } from "./metrics-text.ts";
import { ReadMetric } from "./read-metric.ts";

const text = async (registry: Registry) =>
  Buffer.concat(await new MetricsText(registry, new StepQueue("texts")).pieces()).toString();

const value = fc.oneof(
  fc.double(),
  fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
);
const label = fc.oneof(fc.string(), fc.constantFrom('a"b', "a\\b", "a\nb", "ä€😀"));
const series = fc.array(fc.tuple(label, value), { maxLength: 40 });

test("metrics text: is the same as the registry's own", async () => {
  await fc.assert(
    fc.asyncProperty(series, fc.boolean(), async (samples, hasDefaults) => {
      const registry = new Registry();
      if (hasDefaults) registry.setDefaultLabels({ service: "test", at: "default" });
      const registers = [registry];
      const help = 'What "it" \\ counts\nand how.';
      const gauge = new Gauge({ name: "gauge", help, labelNames: ["at"], registers });
      const counter = new Counter({ name: "counter_total", help, registers });
      const buckets = [0, 1];
      const labelNames = ["at"];
      const histogram = new Histogram({ name: "seconds", help, labelNames, buckets, registers });
      new ReadMetric(registry, { name: "read", help, type: "gauge" }, function* () {
        for (const [at, each] of samples) yield { labels: { at, le: 0.5 }, value: each };
      });
      for (const [at, each] of samples) {
        gauge.set({ at }, each);
        counter.inc();
        histogram.observe({ at }, Number.isFinite(each) ? each : 0);
      }
      expect(await text(registry)).toBe(await registry.metrics());
    }),
  );
});

test("metrics text: a failed read rejects, and the next scrape reads again", async () => {
  const registry = new Registry();
  let reads = 0;
  new ReadMetric(registry, { name: "read", help: "A.", type: "gauge" }, () => {
    if (reads++ === 0) throw new Error("not now");
    return [{ labels: {}, value: 3 }];
  });
  const metrics = new MetricsText(registry, new StepQueue("texts"));
  await expect(metrics.pieces()).rejects.toThrow("not now");
  expect(Buffer.concat(await metrics.pieces()).toString()).toContain("\nread 3\n");
});
