const MAX_TIMES = 128;
const WINDOW_MS = 30_000;
const QUANTILE = 0.9;

/** The times to the first token of a deployment's latest calls. */
export class FirstTokenTimes {
  readonly #times: { readonly ms: number; readonly atMs: number }[] = [];

  add(ms: number, nowMs: number): void {
    if (this.#times.length >= MAX_TIMES) this.#times.shift();
    this.#times.push({ ms, atMs: nowMs });
  }

  /** What 9 of 10 calls of the last half minute had at most; undefined without calls. */
  high(nowMs: number): number | undefined {
    while (this.#times[0] && this.#times[0].atMs < nowMs - WINDOW_MS) this.#times.shift();
    const sorted = this.#times.map(({ ms }) => ms).sort((a, b) => a - b);
    return sorted[Math.ceil(QUANTILE * sorted.length) - 1];
  }
}
