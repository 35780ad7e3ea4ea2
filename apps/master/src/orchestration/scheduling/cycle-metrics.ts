/** Values that figures are taken over. */
const KEPT = 2_048;

interface CycleSample {
  readonly durationMs: number;
  readonly starts: number;
}

/** What this master's latest rounds of scheduling were like. */
export class CycleMetrics {
  readonly #durationsMs: number[] = [];
  #starts = 0;
  #rounds = 0;

  record({ durationMs, starts }: CycleSample): void {
    this.#rounds += 1;
    this.#starts += starts;
    keepLatest(this.#durationsMs, [durationMs]);
  }

  /** Counts since this master started; quantiles over the latest rounds it led. */
  figures() {
    return {
      rounds: this.#rounds,
      starts: this.#starts,
      roundP50Ms: quantile(this.#durationsMs, 0.5),
      roundP99Ms: quantile(this.#durationsMs, 0.99),
    };
  }
}

/** Adds values and lets the oldest go. */
export function keepLatest(values: number[], more: readonly number[]): void {
  values.push(...more);
  if (values.length > 2 * KEPT) values.splice(0, values.length - KEPT);
}

/** The value that the share of values stays at or below; null of none. */
export function quantile(values: readonly number[], share: number): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? null;
}
