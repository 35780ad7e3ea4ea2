/** The values of a vector with the greatest magnitude; indices ascend. */
export interface SparseVector {
  readonly length: number;
  readonly indices: Uint32Array;
  readonly values: Float32Array;
}

/**
 * Selects the `count` values with the greatest magnitude (error feedback, Stich et al., 2018).
 * `residual` is added to the values first, and afterwards holds what was not selected. Ties go to
 * the lower index.
 */
export function toTopK(values: Float32Array, residual: Float32Array, count: number): SparseVector {
  for (let i = 0; i < values.length; i++) residual[i] = (residual[i] ?? 0) + (values[i] ?? 0);
  const kept = Math.min(count, values.length);
  const magnitudes = residual.map(Math.abs).sort();
  const threshold = magnitudes[values.length - kept] ?? Number.POSITIVE_INFINITY;
  let ties = kept - countAbove(residual, threshold);
  const indices: number[] = [];
  for (let i = 0; i < residual.length && indices.length < kept; i++) {
    const magnitude = Math.abs(residual[i] ?? 0);
    if (magnitude < threshold || (magnitude === threshold && ties-- <= 0)) continue;
    indices.push(i);
  }
  const sent = Float32Array.from(indices, (i) => residual[i] ?? 0);
  for (const i of indices) residual[i] = 0;
  return { length: values.length, indices: Uint32Array.from(indices), values: sent };
}

function countAbove(values: Float32Array, threshold: number): number {
  let count = 0;
  for (const value of values) if (Math.abs(value) > threshold) count++;
  return count;
}

/** Adds a sparse vector to a dense one of its length. */
export function addSparse(target: Float32Array, { indices, values }: SparseVector): void {
  for (let i = 0; i < indices.length; i++) {
    const at = indices[i] ?? 0;
    target[at] = (target[at] ?? 0) + (values[i] ?? 0);
  }
}
