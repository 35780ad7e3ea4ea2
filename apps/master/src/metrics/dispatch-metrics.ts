import { Counter, Gauge, type Registry } from "prom-client";
import type { DispatchStats } from "../inference/dispatch/inference-port.ts";

interface Stats extends DispatchStats {
  /** Calls that failed because their worker was lost, since the start. */
  readonly workerLost: number;
}

/** Exposes the dispatch's counters in /metrics; read at every scrape. */
export function exposeDispatchMetrics(registry: Registry, stats: () => Stats): void {
  new Gauge({
    name: "heddle_dispatch_queued_requests",
    help: "Calls that wait on this master for a replica that can take them.",
    registers: [registry],
    collect() {
      this.set(stats().queued);
    },
  });
  const counters = [
    ["started", "heddle_dispatch_started_total", "Calls handed to a replica."],
    ["retries", "heddle_dispatch_retries_total", "Calls sent to another replica after the first."],
    ["continued", "heddle_dispatch_continued_total", "Answers that another replica took over."],
    ["overloaded", "heddle_dispatch_overloaded_total", "Calls that no replica could take in time."],
    ["workerLost", "heddle_dispatch_worker_lost_total", "Calls whose worker went mid-answer."],
  ] as const;
  for (const [field, name, help] of counters) {
    new Counter({
      name,
      help,
      registers: [registry],
      collect() {
        this.reset();
        this.inc(stats()[field]);
      },
    });
  }
}
