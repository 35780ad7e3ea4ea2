import { AppError } from "@heddle/base/errors";
import { elementCount, type Shape } from "./value.ts";

/**
 * Rules for shapes; each throws an AppError `invalid_value` that names the operation and the
 * shapes.
 */

/** The broadcast shape of two operands: axes are aligned at the end, and a size of 1 stretches. */
export function broadcastShape(what: string, left: Shape, right: Shape): Shape {
  const rank = Math.max(left.length, right.length);
  return Array.from({ length: rank }, (_, axis) => {
    const a = left[axis - rank + left.length] ?? 1;
    const b = right[axis - rank + right.length] ?? 1;
    if (a !== b && a !== 1 && b !== 1) throw mismatch(what, left, right);
    return a === 1 ? b : a;
  });
}

export function matmulShape(
  left: Shape,
  right: Shape,
  flags: { readonly transposeLeft: boolean; readonly transposeRight: boolean },
): Shape {
  if (left.length < 2 || right.length !== left.length) throw mismatch("matmul", left, right);
  const batch = left.slice(0, -2);
  const [m, k] = lastTwo(left, flags.transposeLeft);
  const [inner, n] = lastTwo(right, flags.transposeRight);
  const sameBatch = batch.every((size, axis) => size === right[axis]);
  if (k !== inner || !sameBatch) throw mismatch("matmul", left, right);
  return [...batch, m, n];
}

function lastTwo(shape: Shape, swapped: boolean): [number, number] {
  const [rows, columns] = [shape.at(-2) ?? 1, shape.at(-1) ?? 1];
  return swapped ? [columns, rows] : [rows, columns];
}

/** Axes as 0..rank-1, ascending and distinct; negative ones count from the end. */
export function normalAxes(what: string, shape: Shape, axes: readonly number[]): number[] {
  const normal = axes.map((axis) => (axis < 0 ? shape.length + axis : axis));
  const valid = normal.every((axis) => Number.isInteger(axis) && axis >= 0 && axis < shape.length);
  if (!valid || new Set(normal).size !== normal.length) {
    throw bad(`${what}: the axes [${axes.join()}] do not fit the shape [${shape.join()}]`);
  }
  return normal.sort((a, b) => a - b);
}

export function reducedShape(shape: Shape, axes: readonly number[], keepDims: boolean): Shape {
  if (keepDims) return shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
  return shape.filter((_, axis) => !axes.includes(axis));
}

/** A target shape in which one size may be -1: the remaining elements. */
export function reshapedShape(shape: Shape, target: Shape): Shape {
  const rest = elementCount(shape) / elementCount(target.filter((size) => size !== -1));
  const result = target.map((size) => (size === -1 ? rest : size));
  const open = target.filter((size) => size === -1).length;
  const whole = open === 1 ? Number.isInteger(rest) : open === 0 && rest === 1;
  if (!whole) {
    throw bad(`reshape: [${shape.join()}] has another number of elements than [${target.join()}]`);
  }
  return result;
}

export function permutedShape(shape: Shape, permutation: readonly number[]): Shape {
  const axes = normalAxes("transpose", shape, permutation);
  if (axes.length !== shape.length) {
    throw bad(`transpose: [${permutation.join()}] does not name every axis of [${shape.join()}]`);
  }
  return permutation.map((axis) => shape[axis] ?? 1);
}

export function slicedShape(shape: Shape, axis: number, begin: number, end: number): Shape {
  const size = shape[axis];
  if (size === undefined || !(begin >= 0 && begin < end && end <= size)) {
    throw bad(`slice: [${begin}, ${end}) of axis ${axis} is outside [${shape.join()}]`);
  }
  return shape.map((whole, at) => (at === axis ? end - begin : whole));
}

export function concatShape(shapes: readonly Shape[], axis: number): Shape {
  const [first, ...others] = shapes;
  if (first === undefined || first[axis] === undefined) throw bad(`concat: no axis ${axis}`);
  for (const other of others) {
    const alike = other.length === first.length;
    if (!alike || other.some((size, at) => at !== axis && size !== first[at])) {
      throw mismatch("concat", first, other);
    }
  }
  const size = shapes.reduce((sum, shape) => sum + (shape[axis] ?? 0), 0);
  return first.map((whole, at) => (at === axis ? size : whole));
}

function mismatch(what: string, left: Shape, right: Shape): AppError {
  return bad(`${what}: the shapes [${left.join()}] and [${right.join()}] do not fit`);
}

export function bad(message: string): AppError {
  return new AppError("invalid_value", message);
}
