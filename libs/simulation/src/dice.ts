import { type Random, seededRandom } from "@heddle/base/random";

/** Random choices of a simulation, all drawn from one seed. */
export class Dice {
  readonly random: Random;

  /**
   * Each purpose of a seed has its own sequence, so that disabling one fault changes little else.
   */
  constructor(seed: number, purpose: string) {
    let hash = 0x811c9dc5 ^ Math.imul(seed, 0x9e3779b1);
    for (let i = 0; i < purpose.length; i++) {
      hash = Math.imul(hash ^ purpose.charCodeAt(i), 0x01000193);
      hash ^= hash >>> 15;
    }
    this.random = seededRandom(hash);
  }

  chance(probability: number): boolean {
    return this.random() < probability;
  }

  /** An integer in [from, until). */
  whole(from: number, until: number): number {
    return from + Math.floor(this.random() * (until - from));
  }

  between(from: number, to: number): number {
    return from + this.random() * (to - from);
  }

  /** Mostly near the low end, rarely near the high one. */
  skewed(from: number, to: number): number {
    return from + this.random() ** 8 * (to - from);
  }

  pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.random() * items.length)] as T;
  }

  /** Undefined if there is nothing to pick. */
  pickIf<T>(items: readonly T[]): T | undefined {
    return items.length === 0 ? undefined : this.pick(items);
  }
}
