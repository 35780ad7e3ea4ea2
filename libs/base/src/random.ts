/** A source of numbers in [0, 1). */
export type Random = () => number;

/**
 * A small deterministic generator (mulberry32): the same seed gives the same sequence on every
 * machine. For tests, simulations and jitter; never for secrets.
 */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
