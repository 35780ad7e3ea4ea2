import type { Random } from "@heddle/base/random";

/**
 * What an agent acts in: one world at a time, stepped explicitly. The environment owns its state.
 */
export interface Environment {
  readonly name: string;
  readonly observations: number;
  /** The number of choices, or the length of the action vector where the action is continuous. */
  readonly actions: number;
  readonly continuous: boolean;
  /** Steps after which an episode is cut off. */
  readonly maxSteps: number;
  /** Begins an episode and writes its first observation into `observation`. */
  reset(random: Random, observation: Float32Array): void;
  /** `action` is the number of the choice, or the action vector. Writes the next observation. */
  step(action: number | Float32Array, observation: Float32Array): StepOutcome;
  /** The whole state for the next steps; where absent, a job that resumes begins new episodes. */
  snapshot?(): readonly number[];
  /** Restores what `snapshot` returned. */
  restore?(numbers: readonly number[]): void;
}

export interface StepOutcome {
  readonly reward: number;
  /** The episode ended by itself: the value of what follows is 0. */
  readonly terminated: boolean;
  /**
   * The environment cut the episode off, in Gymnasium's sense. A cut at `maxSteps` is not reported
   * here; `terminated` has precedence.
   */
  readonly truncated?: boolean | undefined;
}
