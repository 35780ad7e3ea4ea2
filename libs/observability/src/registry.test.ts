// holds: usage-event-loop-lag

import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { createRegistry } from "./registry.ts";

test("event loop lag: is exposed under prom-client's names", async () => {
  const registry = createRegistry("test");
  const value = async (statistic: string) => {
    const text = await registry.getSingleMetricAsString(
      `nodejs_eventloop_lag_${statistic}_seconds`,
    );
    return Number(/ (\S+)$/.exec(text.trim())?.[1]);
  };
  const blockedMs = 700;
  const endMs = performance.now() + blockedMs;
  while (performance.now() < endMs);
  await delay(20);
  // The sample that was due after 500 ms ran when the loop was free again.
  expect(await value("max")).toBeGreaterThanOrEqual(0.19);
  expect(await value("p99")).toBeGreaterThan(0);
  const text = await registry.metrics();
  for (const statistic of ["min", "max", "mean", "stddev", "p50", "p90", "p99"]) {
    expect(text.split(`# TYPE nodejs_eventloop_lag_${statistic}_seconds gauge`).length).toBe(2);
  }
  expect(text).toContain("nodejs_eventloop_lag_seconds");
});
