// holds: metrics-kit

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { StepQueue } from "@heddle/base/async/step-queue";
import { eventually } from "@heddle/base/testing/eventually";
import { Gauge, Registry } from "prom-client";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { MetricsText } from "./metrics-text.ts";
import { OtlpMetrics } from "./otlp-metrics.ts";
import { metricsCases, seriesName } from "./testing/metrics-kit.ts";
import { OtlpReceiver, type ReceivedMetrics } from "./testing/otlp-receiver.ts";
import { readOtlpMetrics } from "./tracing/otlp-settings.ts";

let receiver: OtlpReceiver;
beforeAll(async () => {
  receiver = await OtlpReceiver.start();
});
afterAll(() => receiver.close());

const HOUR_MS = 3_600_000;
const quiet = { warn: () => undefined };

const settingsFor = (url: string) => ({
  service: "heddle-test",
  instance: "one",
  url,
  intervalMs: HOUR_MS,
  timeoutMs: 10_000,
});

metricsCases({
  title: "Prometheus' text",
  async seen(registry) {
    const text = Buffer.concat([...(await new MetricsText(registry, new StepQueue("x")).pieces())]);
    const lines = text.toString().split("\n");
    return new Map(lines.filter((line) => line !== "" && !line.startsWith("#")).map(seriesOfLine));
  },
});

metricsCases({
  title: "OTLP",
  async seen(registry) {
    receiver.metrics.clear();
    const sender = new OtlpMetrics(settingsFor(`${receiver.endpoint}/v1/metrics`), registry, quiet);
    await sender.close();
    return new Map(seriesOfOtlp(receiver.metrics.get("heddle-test one") ?? []));
  },
});

function seriesOfLine(line: string): [string, number] {
  const [, name = "", labels = "", value = ""] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
  const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(
    ([, key = "", text = ""]) => [
      key,
      text.replace(/\\(.)/g, (_, character: string) => (character === "n" ? "\n" : character)),
    ],
  );
  const number = Number(value.replace(/^\+?(-?)Inf$/, "$1Infinity"));
  return [seriesName(name, Object.fromEntries(pairs)), number];
}

function seriesOfOtlp(metrics: ReceivedMetrics): [string, number][] {
  return metrics.flatMap(({ name, gauge, sum, histogram }) => {
    expect(sum === undefined || sum.isMonotonic).toBe(true);
    return (gauge ?? sum ?? histogram)!.dataPoints.flatMap((point): [string, number][] => {
      const labels = Object.fromEntries(
        point.attributes.map(({ key, value }) => [key, value.stringValue]),
      );
      if (!histogram) return [[seriesName(name, labels), Number(point.asDouble)]];
      const bounds = [...(point.explicitBounds ?? []).map(String), "+Inf"];
      let below = 0;
      return [
        ...bounds.map((le, at): [string, number] => {
          below += Number(point.bucketCounts?.[at]);
          return [seriesName(`${name}_bucket`, { ...labels, le }), below];
        }),
        [seriesName(`${name}_sum`, labels), Number(point.sum)],
        [seriesName(`${name}_count`, labels), Number(point.count)],
      ];
    });
  });
}

test("OTLP metrics: sent at each interval; a receiver that refuses is said once", async () => {
  const answers = [500, 500, 200, 500];
  let calls = 0;
  const server = createServer((request, reply) => {
    request.resume();
    reply.writeHead(answers[calls++] ?? 200).end();
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const registry = new Registry();
  new Gauge({ name: "level", help: "x", registers: [registry] }).set(1);
  const { port } = server.address() as AddressInfo;
  const said: string[] = [];
  const log = { warn: (_: object, message: string) => void said.push(message) };
  const settings = { ...settingsFor(`http://127.0.0.1:${port}/v1/metrics`), intervalMs: 20 };
  const sender = new OtlpMetrics(settings, registry, log);
  await eventually(() => calls >= 6, "six were sent");
  await sender.close();
  expect(said).toEqual(["metrics are not received", "metrics are not received"]);
  const ended = calls;
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(calls).toBe(ended);
});

test("OTLP metrics: asked for by the flag or OpenTelemetry's variables", () => {
  const of = (endpoint: string | undefined, env: NodeJS.ProcessEnv = {}) =>
    readOtlpMetrics({ endpoint, service: "s", instance: "i" }, env);
  expect(of(undefined)).toBeUndefined();
  expect(of("http://h:4318")).toMatchObject({
    url: "http://h:4318/v1/metrics",
    intervalMs: 60_000,
  });
  const base = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://h/x/" };
  expect(of(undefined, base)?.url).toBe("http://h/x/v1/metrics");
  const own = { ...base, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "http://m/all" };
  expect(of(undefined, own)?.url).toBe("http://m/all");
  expect(of("http://h", { OTEL_METRICS_EXPORTER: "none" })).toBeUndefined();
  expect(() => of("http://h", { OTEL_METRIC_EXPORT_INTERVAL: "0" })).toThrow(/INTERVAL takes/);
});
