/** A source of numbers in [0, 1). */
export type Random = () => number;

/** How far the generator's state goes with each number. */
const STRIDE = 0x6d2b79f5;

/**
 * A small deterministic generator (mulberry32): the same seed gives the same sequence on every
 * machine. For tests, simulations and jitter; never for secrets. With `passed` it begins behind so
 * many of the sequence's numbers, however many they are.
 */
export function seededRandom(seed: number, passed = 0): Random {
  // The state is a counter: each number takes it one stride on, and what goes beyond 32 bits is lost.
  let state = ((seed >>> 0) + Math.imul(passed % 2 ** 32, STRIDE)) >>> 0;
  return () => {
    state = (state + STRIDE) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
