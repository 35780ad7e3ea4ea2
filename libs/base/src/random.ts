/** A source of numbers in [0, 1). */
export type Random = () => number;

/** The increment of the generator's state per number. */
const STRIDE = 0x6d2b79f5;

/**
 * A small deterministic generator (mulberry32): the same seed gives the same sequence on every
 * machine. For tests, simulations and jitter; never for secrets. It skips the first `passed`
 * numbers in constant time.
 */
export function seededRandom(seed: number, passed = 0): Random {
  // The state is a 32-bit counter, which each number increments by one stride.
  let state = ((seed >>> 0) + Math.imul(passed % 2 ** 32, STRIDE)) >>> 0;
  return () => {
    state = (state + STRIDE) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
