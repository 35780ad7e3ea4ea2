import type { Random } from "@heddle/base/random";

/** What an agent meets: one world at a time, stepped by hand. State is the environment's own. */
export interface Environment {
  readonly name: string;
  readonly observations: number;
  /** Choices, or numbers to give where the action is continuous. */
  readonly actions: number;
  readonly continuous: boolean;
  /** Steps after which an episode is cut off. */
  readonly maxSteps: number;
  /** Begins an episode and writes its first observation into `observation`. */
  reset(random: Random, observation: Float32Array): void;
  /** `action` is the choice's number, or the numbers. Writes what is seen then. */
  step(action: number | Float32Array, observation: Float32Array): StepOutcome;
  /** All that its next steps follow from; where absent, a job that resumes begins new episodes. */
  snapshot?(): readonly number[];
  /** Goes on from what `snapshot` gave. */
  restore?(numbers: readonly number[]): void;
}

export interface StepOutcome {
  readonly reward: number;
  /** The episode ended by itself: nothing follows, so what follows is worth nothing. */
  readonly terminated: boolean;
  /**
   * The episode was cut off, and would have gone on, as Gymnasium tells it apart; a cut at `maxSteps`
   * is not told here. Where it has also ended by itself, that counts.
   */
  readonly truncated?: boolean | undefined;
}
