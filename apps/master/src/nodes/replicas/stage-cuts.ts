import type { Clock } from "@heddle/base/clock";
import type { StageCandidate } from "./staged-replica.ts";

/** A worker that is not reached for so long is cut off: a restart takes less, or its own end is seen. */
export const CUT_MS = 3_000;
/** Two workers that did not reach each other get no stages of one replica for this time. */
const REMEMBERED_MS = 300_000;
const MAX_CUTS = 1_024;

/** Which workers do not reach each other, as those with last stages have reported. */
export class StageCuts {
  readonly #clock: Clock;
  /** Keyed by both nodes: until when it is remembered, the oldest first. */
  readonly #untilMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  clear(): void {
    this.#untilMs.clear();
  }

  add(one: string, other: string): void {
    const pair = pairOf(one, other);
    this.#untilMs.delete(pair);
    this.#untilMs.set(pair, this.#clock.monotonicMs() + REMEMBERED_MS);
    const oldest = this.#untilMs.keys().next().value;
    if (this.#untilMs.size > MAX_CUTS && oldest !== undefined) this.#untilMs.delete(oldest);
  }

  between(one: string, other: string): boolean {
    return (this.#untilMs.get(pairOf(one, other)) ?? 0) > this.#clock.monotonicMs();
  }

  /** The number of others that the node is cut off from. */
  countOf(node: string): number {
    const nowMs = this.#clock.monotonicMs();
    const own = [...this.#untilMs].filter(
      ([pair, untilMs]) => untilMs > nowMs && pair.split(" ").includes(node),
    );
    return own.length;
  }

  /** Leaves out workers that others do not reach, those that are cut off from most first. */
  connected(workers: readonly StageCandidate[]): StageCandidate[] {
    const kept = new Set<string>();
    const counts = new Map(workers.map(({ node: { id } }) => [id, this.countOf(id)]));
    for (const [id] of [...counts].sort(([, a], [, b]) => a - b)) {
      if ([...kept].every((other) => !this.between(id, other))) kept.add(id);
    }
    return workers.filter(({ node }) => kept.has(node.id));
  }
}

function pairOf(one: string, other: string): string {
  return one < other ? `${one} ${other}` : `${other} ${one}`;
}
