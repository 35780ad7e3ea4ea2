import { ReadMetric } from "@heddle/observability/read-metric";
import type { Registry } from "prom-client";
import type { AuditTrail } from "./audit-trail.ts";

/** `heddle_audit...` in /metrics. */
export function exposeAudit(registry: Registry, trail: AuditTrail): void {
  const figures = [
    ["recorded_total", "counter", "Calls recorded in the event log.", () => trail.counts.recorded],
    ["dropped_total", "counter", "Calls that were only counted.", () => trail.counts.dropped],
    ["waiting", "gauge", "Calls that are not in the event log yet.", () => trail.waiting],
  ] as const;
  for (const [suffix, type, help, read] of figures) {
    new ReadMetric(registry, { name: `heddle_audit_${suffix}`, type, help }, () => [
      { labels: {}, value: read() },
    ]);
  }
}
