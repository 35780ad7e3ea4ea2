import type { Random } from "@heddle/base/random";
import type { Environment } from "./environment.ts";

/** An episode that ended, by itself or by its limit. */
export interface Episode {
  readonly return: number;
  readonly length: number;
}

/** The result of one step of all environments, one number for each. */
export interface VectorStep {
  readonly rewards: Float32Array;
  /** 1 where the episode has ended; the observation is then the first of the next episode. */
  readonly dones: Float32Array;
  /** The episodes that were cut off and did not end by themselves. */
  readonly truncations: readonly Truncation[];
}

/** An episode that was cut off, by its limit of steps or by its environment. */
export interface Truncation {
  readonly environment: number;
  /** The last observation before the next episode began. */
  readonly observation: Float32Array;
}

/** Several environments stepped together; each begins a new episode when its episode ends. */
export class VectorEnvironment {
  readonly size: number;
  /** The current observation of each, row by row. */
  readonly observations: Float32Array;
  /** The greatest absolute reward of all steps so far. */
  greatestReward = 0;
  readonly #worlds: readonly Environment[];
  readonly #views: readonly Float32Array[];
  readonly #random: Random;
  readonly #returns: Float64Array;
  readonly #lengths: Int32Array;
  readonly #onEpisode: (episode: Episode) => void;

  constructor(
    worlds: readonly Environment[],
    random: Random,
    onEpisode: (episode: Episode) => void,
  ) {
    const width = worlds[0]?.observations ?? 0;
    this.size = worlds.length;
    this.#worlds = worlds;
    this.#random = random;
    this.#onEpisode = onEpisode;
    this.observations = new Float32Array(worlds.length * width);
    this.#views = worlds.map((_, i) => this.observations.subarray(i * width, (i + 1) * width));
    this.#returns = new Float64Array(worlds.length);
    this.#lengths = new Int32Array(worlds.length);
    for (const i of worlds.keys()) this.#begin(i);
  }

  /** One choice, or one row of numbers, for each environment. */
  step(actions: Int32Array | Float32Array): VectorStep {
    const rewards = new Float32Array(this.size);
    const dones = new Float32Array(this.size);
    const truncations: Truncation[] = [];
    const width = actions.length / this.size;
    for (const [i, world] of this.#worlds.entries()) {
      const action =
        actions instanceof Int32Array
          ? (actions[i] ?? 0)
          : actions.subarray(i * width, (i + 1) * width);
      const { reward, terminated, truncated = false } = world.step(action, this.#view(i));
      rewards[i] = reward;
      this.greatestReward = Math.max(this.greatestReward, Math.abs(reward));
      const length = (this.#lengths[i] ?? 0) + 1;
      const total = (this.#returns[i] ?? 0) + reward;
      this.#lengths[i] = length;
      this.#returns[i] = total;
      if (!terminated && !truncated && length < world.maxSteps) continue;
      dones[i] = 1;
      if (!terminated) truncations.push({ environment: i, observation: this.#view(i).slice() });
      this.#onEpisode({ return: total, length });
      this.#begin(i);
    }
    return { rewards, dones, truncations };
  }

  /**
   * The whole state for the next steps except the random draws; undefined where an environment has
   * no snapshot.
   */
  snapshot(): Float64Array<ArrayBuffer> | undefined {
    const worlds = this.#worlds.flatMap((world) => world.snapshot?.() ?? []);
    if (this.#worlds.some(({ snapshot, restore }) => !snapshot || !restore)) return undefined;
    const { greatestReward } = this;
    const parts = [[greatestReward], this.#returns, this.#lengths, this.observations, worlds];
    const numbers = new Float64Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of parts) {
      numbers.set(part, at);
      at += part.length;
    }
    return numbers;
  }

  /**
   * Restores what `snapshot` returned; false, with no change, where it is of other environments.
   */
  restore(numbers: Float64Array): boolean {
    if (this.snapshot()?.length !== numbers.length) return false;
    let at = 0;
    const take = (count: number) => {
      at += count;
      return numbers.subarray(at - count, at);
    };
    this.greatestReward = take(1)[0] ?? 0;
    for (const kept of [this.#returns, this.#lengths, this.observations]) {
      kept.set(take(kept.length));
    }
    for (const world of this.#worlds) world.restore?.([...take(world.snapshot?.().length ?? 0)]);
    return true;
  }

  #begin(i: number): void {
    this.#returns[i] = 0;
    this.#lengths[i] = 0;
    this.#worlds[i]?.reset(this.#random, this.#view(i));
  }

  #view(i: number): Float32Array {
    return this.#views[i] as Float32Array;
  }
}
