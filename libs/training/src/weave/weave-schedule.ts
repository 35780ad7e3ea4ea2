/** How a weave job's steps fall into rounds. */
export interface LocalSteps {
  /** Steps of each worker in all. */
  readonly total_steps: number;
  /** H: steps between two exchanges. 1 with plain SGD is synchronous SGD. */
  readonly local_steps: number;
  /**
   * The first so many steps are exchanged more often: workers that begin apart at once never make
   * up for it, as parameters move most in the beginning.
   */
  readonly warm_start_steps?: number | undefined;
  /** Steps between two exchanges then. */
  readonly warm_start_local_steps?: number | undefined;
}

export interface WeaveSchedule {
  /** Exchanges of each worker. */
  readonly rounds: number;
  /** Steps of a round, which counts from 1. */
  stepsOf(round: number): number;
  /** Steps behind so many rounds. */
  stepAfter(rounds: number): number;
}

/** The last round is shorter where the steps are no multiple, so that none is beyond the total. */
export function weaveSchedule(config: LocalSteps): WeaveSchedule {
  const { total_steps: total, local_steps: usual, warm_start_local_steps: brief = 1 } = config;
  const warm = Math.ceil(Math.min(config.warm_start_steps ?? 0, total) / brief);
  const left = Math.max(0, total - warm * brief);
  const stepAfter = (rounds: number) =>
    Math.min(total, Math.min(rounds, warm) * brief + Math.max(0, rounds - warm) * usual);
  return {
    rounds: warm + Math.ceil(left / usual),
    stepsOf: (round) => stepAfter(round) - stepAfter(round - 1),
    stepAfter,
  };
}
