import type { Parameters } from "../parameter-client.ts";
import type { ParameterRange } from "../sharding/fragments.ts";

/** Where a worker's state keeps the average, tensor by tensor. */
const AVERAGE = "average.";
/** By fragment: how much of it has been filled, and behind how many steps it was taken in last. */
const WEIGHTS = "average_weights";
const STEPS = "average_steps";

type State = Readonly<Record<string, Float32Array>>;

/**
 * An exponential moving average of what the servers have after each exchange, by which the noise of
 * the last steps averages out (Polyak and Juditsky, 1992). It follows from what a worker pulls anyway,
 * so it costs no bytes; training does not see it.
 */
export class ModelAverage {
  /** What a worker keeps of it; changed in place. */
  readonly state: State;
  readonly #ranges: readonly (readonly ParameterRange[])[];
  readonly #horizon: number;
  readonly #weights: Float32Array;
  readonly #steps: Float32Array;

  /**
   * Over about `horizon` steps, of parameters whose fragments are `ranges`; goes on from `kept` where
   * it has an average of the same form.
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

  /** Takes in what the servers have of a fragment when a worker has so many steps behind it. */
  add(fragment: number, shared: Parameters, step: number): void {
    // A worker's state may be of a later round than the parameters that it resumes from.
    const passed = Math.max(0, step - (this.#steps[fragment] ?? 0));
    const share = 1 - Math.exp(-passed / this.#horizon);
    const weight = (this.#weights[fragment] ?? 0) * (1 - share) + share;
    // What has not been filled yet counts for nothing, as in Adam's correction of its moments.
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

  /** Leaves the average in `parameters`, which stay as they are where nothing was taken in. */
  copyTo(parameters: Parameters): void {
    if (this.#weights.includes(0)) return;
    for (const [name, data] of Object.entries(parameters)) {
      data.set(this.state[`${AVERAGE}${name}`] ?? []);
    }
  }
}
