import type { LimitRefusal } from "@heddle/auth/limits/limit-store";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";

const BUCKETS = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];

/** Refusals by limits, and the state of the store that counts them. */
export class LimitMetrics {
  readonly #refusals: Counter<"kind" | "limit">;
  #durations: Histogram | undefined;
  #failures: Counter | undefined;

  constructor(registry: Registry) {
    this.#refusals = new Counter({
      name: "heddle_limit_refusals_total",
      help: "Calls refused by a limit, by whose limit it is and which one.",
      labelNames: ["kind", "limit"],
      registers: [registry],
    });
  }

  refused({ subject, limitedBy }: LimitRefusal): void {
    this.#refusals.inc({ kind: subject.kind, limit: limitedBy });
  }

  /** Exposes Redis as the store. */
  exposeStore(registry: Registry, isOpen: () => boolean): void {
    new Gauge({
      name: "heddle_limit_store_up",
      help: "1 while limits are counted in Redis, 0 while this master counts its share.",
      registers: [registry],
      collect() {
        this.set(isOpen() ? 1 : 0);
      },
    });
    this.#failures = new Counter({
      name: "heddle_limit_store_failures_total",
      help: "Losses of Redis as the store of limits.",
      registers: [registry],
    });
    this.#durations = new Histogram({
      name: "heddle_limit_store_seconds",
      help: "Time that a call waited for Redis to count it.",
      buckets: BUCKETS,
      registers: [registry],
    });
  }

  taken(seconds: number): void {
    this.#durations?.observe(seconds);
  }

  failed(): void {
    this.#failures?.inc();
  }
}
