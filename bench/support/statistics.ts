/** The figures of one set of measurements, in the unit of the measurements. */
export interface Summary {
  readonly count: number;
  readonly mean: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** All zero for no measurements, so that a round in which everything failed still prints. */
export function summarizeSamples(values: readonly number[]): Summary {
  if (values.length === 0) return { count: 0, mean: 0, p50: 0, p99: 0, max: 0 };
  const sorted = Float64Array.from(values).sort();
  const at = (fraction: number) => ofSorted(sorted, fraction);
  return { count: sorted.length, mean: mean(values), p50: at(0.5), p99: at(0.99), max: at(1) };
}

export function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

export function median(values: readonly number[]): number {
  return values.length === 0 ? 0 : ofSorted(Float64Array.from(values).sort(), 0.5);
}

/** The rise per unit of x of the straight line that fits the points best (least squares). */
export function slope(points: readonly { readonly x: number; readonly y: number }[]): number {
  const meanX = mean(points.map(({ x }) => x));
  const meanY = mean(points.map(({ y }) => y));
  const spread = points.reduce((sum, { x }) => sum + (x - meanX) ** 2, 0);
  if (spread === 0) return 0;
  return points.reduce((sum, { x, y }) => sum + (x - meanX) * (y - meanY), 0) / spread;
}

/** A generator of numbers in [0, 1) that gives the same ones for the same seed (mulberry32). */
export function benchRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Linear interpolation between the two nearest ranks. */
function ofSorted(sorted: Float64Array, fraction: number): number {
  const rank = fraction * (sorted.length - 1);
  const low = sorted[Math.floor(rank)] ?? 0;
  const high = sorted[Math.ceil(rank)] ?? low;
  return low + (high - low) * (rank - Math.floor(rank));
}
