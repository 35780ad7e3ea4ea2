import type { Parameters } from "../parameter-client.ts";
import type { ParameterRange } from "../sharding/fragments.ts";

/** The prefix of the average in a worker's state, tensor by tensor. */
const AVERAGE = "average.";
/** Indexed by fragment: the average's total weight, and the step of its last addition. */
const WEIGHTS = "average_weights";
const STEPS = "average_steps";

type State = Readonly<Record<string, Float32Array>>;

/**
 * An exponential moving average of the servers' values after each exchange, which averages out the
 * noise of the last steps (Polyak and Juditsky, 1992). It uses only what a worker pulls anyway, and
 * training does not depend on it.
 */
export class ModelAverage {
  /** Its part of a worker's state; changed in place. */
  readonly state: State;
  readonly #ranges: readonly (readonly ParameterRange[])[];
  readonly #horizon: number;
  readonly #weights: Float32Array;
  readonly #steps: Float32Array;

  /**
   * Over about `horizon` steps, of parameters whose fragments are `ranges`. Resumes from `kept`
   * where it has an average of the same form.
   */
  constructor(
    parameters: Parameters,
    ranges: readonly (readonly ParameterRange[])[],
    horizon: number,
    kept: State = {},
  ) {
    this.#ranges = ranges;
    this.#horizon = horizon;
    const zeros: State = {
      ...Object.fromEntries(
        Object.entries(parameters).map(([name, { length }]) => [
          `${AVERAGE}${name}`,
          new Float32Array(length),
        ]),
      ),
      [WEIGHTS]: new Float32Array(ranges.length),
      [STEPS]: new Float32Array(ranges.length),
    };
    const fits = Object.entries(zeros).every(([name, { length }]) => kept[name]?.length === length);
    if (fits) for (const [name, zero] of Object.entries(zeros)) zero.set(kept[name] ?? []);
    this.state = zeros;
    this.#weights = zeros[WEIGHTS] as Float32Array;
    this.#steps = zeros[STEPS] as Float32Array;
  }

  /** Adds the servers' values of a fragment after `step` steps of the worker. */
  add(fragment: number, shared: Parameters, step: number): void {
    // A worker's state may be of a later round than the parameters that it resumes from.
    const passed = Math.max(0, step - (this.#steps[fragment] ?? 0));
    const share = 1 - Math.exp(-passed / this.#horizon);
    const weight = (this.#weights[fragment] ?? 0) * (1 - share) + share;
    // The missing weight is corrected for, as in Adam's moments.
    const part = weight > 0 ? share / weight : 0;
    this.#weights[fragment] = weight;
    this.#steps[fragment] = step;
    for (const { parameter, begin, end } of this.#ranges[fragment] ?? []) {
      const [average, theirs] = [this.state[`${AVERAGE}${parameter}`], shared[parameter]];
      if (!average || !theirs) continue;
      for (let i = begin; i < end; i++) {
        const before = average[i] ?? 0;
        average[i] = before + part * ((theirs[i] ?? 0) - before);
      }
    }
  }

  /** Writes the average to `parameters`; fragments without one stay unchanged. */
  copyTo(parameters: Parameters): void {
    if (this.#weights.includes(0)) return;
    for (const [name, data] of Object.entries(parameters)) {
      data.set(this.state[`${AVERAGE}${name}`] ?? []);
    }
  }
}
