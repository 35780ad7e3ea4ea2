import { ReadMetric } from "@heddle/observability/read-metric";
import type { Registry } from "prom-client";

/** A conflict: the object has changed meanwhile. */
type Outcome = "done" | "conflict" | "failed";

/** What is read of a kind at each scrape. */
export interface WatchedKind {
  readonly plural: string;
  objects(): number;
  /** Objects that wait for work, or are worked on. */
  open(): number;
}

/** `heddle_operator_...` in /metrics: what the controllers watch, and how their work ends. */
export class ReconcileMetrics {
  readonly #kinds: WatchedKind[] = [];
  readonly #counts = new Map<string, Record<Outcome, number>>();

  constructor(registry: Registry) {
    const name = (suffix: string) => `heddle_operator_${suffix}`;
    const gauge = (suffix: string, help: string, read: (kind: WatchedKind) => number) => {
      new ReadMetric(registry, { name: name(suffix), type: "gauge", help }, () =>
        this.#kinds.map((kind) => ({ labels: { kind: kind.plural }, value: read(kind) })),
      );
    };
    gauge("objects", "Objects that are watched.", (kind) => kind.objects());
    gauge("open_objects", "Objects that wait for work, or are worked on.", (kind) => kind.open());
    const help = "Ends of work on an object, by outcome.";
    new ReadMetric(registry, { name: name("reconciles_total"), type: "counter", help }, () =>
      [...this.#counts].flatMap(([kind, counts]) =>
        Object.entries(counts).map(([outcome, value]) => ({ labels: { kind, outcome }, value })),
      ),
    );
  }

  watch(kind: WatchedKind): void {
    this.#kinds.push(kind);
    this.#counts.set(kind.plural, { done: 0, conflict: 0, failed: 0 });
  }

  count(plural: string, outcome: Outcome): void {
    const counts = this.#counts.get(plural);
    if (counts) counts[outcome]++;
  }
}
