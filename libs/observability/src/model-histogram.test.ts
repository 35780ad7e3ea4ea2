import fc from "fast-check";
import { Histogram, Registry } from "prom-client";
import { expect, test } from "vitest";
import { InferenceMetrics } from "./inference-metrics.ts";
import { ModelHistogram } from "./model-histogram.ts";

const name = "seconds";
const help = "Time.";
const buckets = [0.1, 0.5, 1, 5];
const observation = fc.record({
  model: fc.constantFrom("a", "b"),
  value: fc.oneof(fc.constantFrom(0, ...buckets, 7), fc.double({ min: 0, max: 9, noNaN: true })),
});

test("model histogram: writes the same text as prom-client's own", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(observation), async (observations) => {
      const [ours, theirs] = [new Registry(), new Registry()];
      const histogram = new ModelHistogram(ours, name, help, buckets);
      const labelNames = ["model_name"];
      const model = new Histogram({ name, help, labelNames, buckets, registers: [theirs] });
      for (const each of observations) {
        histogram.of(each.model).observe(each.value);
        model.labels(each.model).observe(each.value);
      }
      expect(await ours.metrics()).toBe(await theirs.metrics());
    }),
  );
});

test("model histogram: a scrape calls back for pending observations first", async () => {
  const registry = new Registry();
  const metrics = new InferenceMetrics(registry, {
    load: async () => ({ replicas: [], kvUsage: new Map() }),
    isRegistered: () => true,
  });
  const model = metrics.of("m");
  model.running.inc();
  model.waiting.inc();
  model.waiting.dec();
  metrics.succeeded("m", "stop");
  metrics.succeeded("m", "stop");
  metrics.failed("", "overloaded");
  metrics.onScrape(() => {
    model.promptTokens.inc(5);
    model.interTokenLatency.observe(0.03);
  });
  for (const scrapes of [1, 2]) {
    const lines = (await registry.metrics()).split("\n");
    expect(lines).toEqual(
      expect.arrayContaining([
        'vllm:request_success_total{model_name="m",finished_reason="stop"} 2',
        'vllm:num_requests_running{model_name="m"} 1',
        'vllm:num_requests_waiting{model_name="m"} 0',
        `vllm:prompt_tokens_total{model_name="m"} ${5 * scrapes}`,
        'vllm:prefix_cache_hits_total{model_name="m"} 0',
        `vllm:inter_token_latency_seconds_bucket{le="0.04",model_name="m"} ${scrapes}`,
        'heddle_requests_failed_total{model_name="",code="overloaded"} 1',
      ]),
    );
  }
});
