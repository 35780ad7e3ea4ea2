import type { Parameters } from "../parameter-client.ts";
import type { ParameterSpec } from "../training-program.ts";

/** The weight of the prior (mean 0, variance 1) in samples, as in Stable-Baselines3. */
const PRIOR_SAMPLES = 1e-4;
/** Added to a variance, so that a constant is not divided by zero. */
const EPSILON = 1e-8;
/** Normalized numbers are clipped here, on both sides, as in CleanRL and Stable-Baselines3. */
export const NORMALIZED_LIMIT = 10;

/** The tensors that hold the moments of `width` numbers beside a model's parameters. */
export function momentParameters(name: string, width: number): ParameterSpec[] {
  return [
    { name: `${name}.mean`, shape: [width], init: { kind: "zeros" } },
    { name: `${name}.variance`, shape: [width], init: { kind: "ones" } },
    { name: `${name}.count`, shape: [1], init: { kind: "zeros" } },
  ];
}

/** The normalization of a number: `clip((x - mean) * inverseDeviation, -10, 10)`. */
export interface Scale {
  readonly mean: Float64Array;
  readonly inverseDeviation: Float64Array;
}

/** The scale that is stored under that name; undefined where there is none. */
export function scaleIn(parameters: Parameters, name: string): Scale | undefined {
  return `${name}.mean` in parameters ? new RunningMoments(parameters, name).scale() : undefined;
}

/**
 * Mean and variance of all rows so far, for each number separately. Batches are merged by the
 * formula of Chan, Golub and LeVeque (1979). Begins with the moments among the parameters.
 */
export class RunningMoments {
  readonly #name: string;
  readonly #mean: Float64Array;
  readonly #variance: Float64Array;
  #count: number;

  constructor(parameters: Parameters, name: string) {
    this.#name = name;
    this.#mean = Float64Array.from(parameters[`${name}.mean`] ?? []);
    this.#variance = Float64Array.from(parameters[`${name}.variance`] ?? []);
    this.#count = (parameters[`${name}.count`]?.[0] ?? 0) + PRIOR_SAMPLES;
  }

  /** Rows of the mean's length, one after the other. */
  add(rows: Float32Array | Float64Array): void {
    const width = this.#mean.length;
    const count = rows.length / width;
    const total = this.#count + count;
    for (let i = 0; i < width; i++) {
      let sum = 0;
      for (let at = i; at < rows.length; at += width) sum += rows[at] ?? 0;
      const mean = sum / count;
      let squares = 0;
      for (let at = i; at < rows.length; at += width) squares += ((rows[at] ?? 0) - mean) ** 2;
      const apart = mean - (this.#mean[i] ?? 0);
      const before = (this.#variance[i] ?? 0) * this.#count;
      const between = (apart * apart * this.#count * count) / total;
      this.#mean[i] = (this.#mean[i] ?? 0) + (apart * count) / total;
      this.#variance[i] = (before + squares + between) / total;
    }
    this.#count = total;
  }

  scale(): Scale {
    return {
      mean: this.#mean,
      inverseDeviation: this.#variance.map((variance) => 1 / Math.sqrt(variance + EPSILON)),
    };
  }

  /** Writes them to the parameters; a count is exact to 16,777,216, and then rounded. */
  keepIn(parameters: Parameters): void {
    parameters[`${this.#name}.mean`]?.set(this.#mean);
    parameters[`${this.#name}.variance`]?.set(this.#variance);
    parameters[`${this.#name}.count`]?.fill(this.#count - PRIOR_SAMPLES);
  }
}
