/**
 * For tests: the largest difference of two numbers at one place of vectors; infinite where their shapes
 * differ. Kernels round by the size of a call, so vectors of other calls are near and not equal.
 */
export function largestDifference(
  some: readonly (readonly number[])[],
  others: readonly (readonly number[])[],
): number {
  const isAlike =
    some.length === others.length && some.every(({ length }, i) => length === others[i]?.length);
  if (!isAlike) return Number.POSITIVE_INFINITY;
  let largest = 0;
  for (const [i, values] of some.entries()) {
    for (const [k, value] of values.entries()) {
      largest = Math.max(largest, Math.abs(value - (others[i]?.[k] ?? Number.NaN)));
    }
  }
  return largest;
}
