/** How a weave job's steps are divided into rounds. */
export interface LocalSteps {
  /** Steps of each worker in all. */
  readonly total_steps: number;
  /** H: steps between two exchanges. 1 with plain SGD is synchronous SGD. */
  readonly local_steps: number;
  /**
   * The first steps are exchanged more often: parameters move most in the beginning, and workers
   * that diverge then never recover.
   */
  readonly warm_start_steps?: number | undefined;
  /** Steps between two exchanges in the warm start. */
  readonly warm_start_local_steps?: number | undefined;
}

export interface WeaveSchedule {
  /** Exchanges of each worker. */
  readonly rounds: number;
  /** Steps of a round, which counts from 1. */
  stepsOf(round: number): number;
  /** Steps after `rounds` rounds. */
  stepAfter(rounds: number): number;
}

/** The last round is shorter where the steps are not a multiple, so that none exceeds the total. */
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

/** How a weave job's fragments are exchanged during computation. */
export interface Overlap {
  /** F: parts of the model that are exchanged separately, evenly spread over a round. */
  readonly fragments: number;
  /** tau: steps that a worker computes during an exchange; less than `local_steps`. */
  readonly overlap_steps: number;
}

/** What a worker does with fragments after one of its steps. */
export interface StepEvents {
  /** The number of the step. */
  readonly step: number;
  /** Fragments whose exchange begins. */
  readonly begin: readonly number[];
  /** Fragments whose exchange has ended by now, or is waited for. */
  readonly merge: readonly number[];
}

export interface FragmentSchedule {
  /** In the order of steps; the last is at the round's end. */
  eventsOf(round: number): readonly StepEvents[];
  /** Fragments whose exchange is in progress after `rounds` rounds. */
  underWayAfter(rounds: number): readonly number[];
}

/**
 * Streaming DiLoCo (Douillard et al., 2025, algorithm 2): fragment f is exchanged (f + 1) / F
 * through each round. It is merged `overlap_steps` later, but before its next exchange; the last
 * round exchanges all fragments at its end.
 */
export function fragmentSchedule(
  { rounds, stepsOf, stepAfter }: WeaveSchedule,
  { fragments, overlap_steps: overlap }: Overlap,
): FragmentSchedule {
  const beginStep = (fragment: number, round: number) =>
    round === rounds
      ? stepAfter(round)
      : stepAfter(round - 1) + Math.ceil(((fragment + 1) * stepsOf(round)) / fragments);
  const mergeStep = (fragment: number, round: number) => {
    const begun = beginStep(fragment, round);
    return round === rounds ? begun : Math.min(begun + overlap, beginStep(fragment, round + 1) - 1);
  };
  const all = Array.from({ length: fragments }, (_, fragment) => fragment);
  const underWayAfter = (round: number) =>
    round < 1 ? [] : all.filter((fragment) => mergeStep(fragment, round) > stepAfter(round));
  const eventsOf = (round: number) => {
    const begins = all.map((fragment) => ({ fragment, step: beginStep(fragment, round) }));
    const late = underWayAfter(round - 1);
    const merges = [
      ...late.map((fragment) => ({ fragment, step: mergeStep(fragment, round - 1) })),
      ...all.map((fragment) => ({ fragment, step: mergeStep(fragment, round) })),
    ];
    const end = stepAfter(round);
    const steps = new Set([...begins, ...merges, { step: end }].map(({ step }) => step));
    return [...steps]
      .filter((step) => step <= end)
      .sort((a, b) => a - b)
      .map((step) => {
        const at = (events: typeof begins) =>
          events.filter((event) => event.step === step).map(({ fragment }) => fragment);
        return { step, begin: at(begins), merge: at(merges) };
      });
  };
  return { eventsOf, underWayAfter };
}
