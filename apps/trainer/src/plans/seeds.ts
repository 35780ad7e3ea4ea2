import { type Random, seededRandom } from "@heddle/base/random";

/**
 * Independent random numbers for each use of a job's seed, distinguished by numbers such as rank
 * and round.
 */
export function drawsFor(seed: number, ...uses: readonly number[]): Random {
  return seededRandom(seedFor(seed, uses));
}

/** Like `drawsFor`, after the first `passed` numbers. */
export function drawsBehind(passed: number, seed: number, ...uses: readonly number[]): Random {
  return seededRandom(seedFor(seed, uses), passed);
}

function seedFor(seed: number, uses: readonly number[]): number {
  let mixed = seed >>> 0;
  for (const use of uses) {
    // The finalizer of MurmurHash3 (Appleby, 2011).
    mixed = (mixed ^ Math.imul(use + 1, 0x9e3779b1)) >>> 0;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    mixed = (mixed ^ (mixed >>> 16)) >>> 0;
  }
  return mixed;
}
