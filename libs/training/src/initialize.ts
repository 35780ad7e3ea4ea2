import type { Random } from "@heddle/base/random";
import { elementCount } from "./ir/value.ts";
import type { ParameterSpec } from "./training-program.ts";

/** A job's initial parameters: the same random numbers give the same parameters everywhere. */
export function initialParameters(
  specs: readonly ParameterSpec[],
  random: Random,
): Record<string, Float32Array> {
  return Object.fromEntries(specs.map((spec) => [spec.name, draw(spec, random)]));
}

function draw({ shape, init }: ParameterSpec, random: Random): Float32Array {
  const count = elementCount(shape);
  switch (init.kind) {
    case "zeros":
      return new Float32Array(count);
    case "ones":
      return new Float32Array(count).fill(1);
    case "normal":
      return Float32Array.from({ length: count }, () => init.deviation * normal(random));
    case "orthogonal":
      return orthogonal(shape, init.gain, random);
    default:
      return init satisfies never;
  }
}

/** A standard normal number by Box and Muller's method. */
export function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/**
 * Orthonormal rows or columns, whichever are fewer, by the Gram-Schmidt method on normal random
 * numbers.
 */
function orthogonal(shape: readonly number[], gain: number, random: Random): Float32Array {
  const [rows = 1, columns = 1] = shape;
  const length = Math.max(rows, columns);
  const basis: Float64Array[] = [];
  while (basis.length < Math.min(rows, columns)) {
    const vector = Float64Array.from({ length }, () => normal(random));
    for (const other of basis) {
      const along = dot(vector, other);
      for (let i = 0; i < length; i++) vector[i] = (vector[i] ?? 0) - along * (other[i] ?? 0);
    }
    const norm = Math.sqrt(dot(vector, vector));
    basis.push(vector.map((number) => number / norm));
  }
  const result = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const number = rows <= columns ? basis[row]?.[column] : basis[column]?.[row];
      result[row * columns + column] = gain * (number ?? 0);
    }
  }
  return result;
}

function dot(left: Float64Array, right: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < left.length; i++) sum += (left[i] ?? 0) * (right[i] ?? 0);
  return sum;
}
