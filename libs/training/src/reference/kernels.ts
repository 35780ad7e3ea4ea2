import { broadcastShape } from "../ir/shapes.ts";
import { type BinaryKind, elementCount, type Shape, type UnaryKind } from "../ir/value.ts";

/** Plain loops in float64: slow and evidently correct, the oracle of every other backend. */

/** Distance in elements between neighbours along each axis; 0 along an axis that stretches. */
function strides(shape: Shape, target: Shape): number[] {
  const result = new Array<number>(target.length).fill(0);
  let stride = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const size = shape[axis] ?? 1;
    if (size !== 1) result[axis + target.length - shape.length] = stride;
    stride *= size;
  }
  return result;
}

/** Calls with the operand's position for each position of the target, in order. */
function forEachIn(
  target: Shape,
  steps: readonly number[],
  visit: (from: number, to: number) => void,
): void {
  const index = new Array<number>(target.length).fill(0);
  const count = elementCount(target);
  let from = 0;
  for (let to = 0; to < count; to++) {
    visit(from, to);
    for (let axis = target.length - 1; axis >= 0; axis--) {
      index[axis] = (index[axis] ?? 0) + 1;
      from += steps[axis] ?? 0;
      if ((index[axis] ?? 0) < (target[axis] ?? 1)) break;
      from -= (steps[axis] ?? 0) * (target[axis] ?? 1);
      index[axis] = 0;
    }
  }
}

const BINARY: Record<BinaryKind, (a: number, b: number) => number> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  max: Math.max,
  min: Math.min,
  less: (a, b) => (a < b ? 1 : 0),
  lessEqual: (a, b) => (a <= b ? 1 : 0),
};

const UNARY: Record<UnaryKind, (a: number) => number> = {
  neg: (a) => -a,
  exp: Math.exp,
  log: Math.log,
  sqrt: Math.sqrt,
  tanh: Math.tanh,
  sigmoid: (a) => 1 / (1 + Math.exp(-a)),
  relu: (a) => Math.max(0, a),
  abs: Math.abs,
  sign: Math.sign,
  stopGradient: (a) => a,
};

interface Tensor {
  readonly data: Float64Array;
  readonly shape: Shape;
}

export function binary(kind: BinaryKind, left: Tensor, right: Tensor): Float64Array {
  const a = broadcast(left, broadcastShape(kind, left.shape, right.shape));
  const b = broadcast(right, broadcastShape(kind, left.shape, right.shape));
  const apply = BINARY[kind];
  return a.map((value, i) => apply(value, b[i] ?? 0));
}

export function unary(kind: UnaryKind, input: Tensor): Float64Array {
  return input.data.map(UNARY[kind]);
}

export function broadcast(input: Tensor, shape: Shape): Float64Array {
  const result = new Float64Array(elementCount(shape));
  forEachIn(shape, strides(input.shape, shape), (from, to) => {
    result[to] = input.data[from] ?? 0;
  });
  return result;
}

export function transpose(input: Tensor, permutation: readonly number[]): Float64Array {
  const own = strides(input.shape, input.shape);
  const target = permutation.map((axis) => input.shape[axis] ?? 1);
  const result = new Float64Array(input.data.length);
  const steps = permutation.map((axis) => own[axis] ?? 0);
  forEachIn(target, steps, (from, to) => {
    result[to] = input.data[from] ?? 0;
  });
  return result;
}

/** Folds the axes of `input` that have size 1 in `kept` (a shape of the same rank). */
export function reduce(
  input: Tensor,
  kept: Shape,
  start: number,
  fold: (sum: number, value: number) => number,
): Float64Array {
  const result = new Float64Array(elementCount(kept)).fill(start);
  forEachIn(input.shape, strides(kept, input.shape), (at, from) => {
    result[at] = fold(result[at] ?? 0, input.data[from] ?? 0);
  });
  return result;
}

/** [batch, m, k] x [batch, k, n]; the operands are given with their axes in that order. */
export function matmul(
  left: Float64Array,
  right: Float64Array,
  [batch, m, k, n]: readonly [number, number, number, number],
): Float64Array {
  const result = new Float64Array(batch * m * n);
  for (let row = 0; row < batch * m; row++) {
    const page = Math.floor(row / m) * k;
    for (let inner = 0; inner < k; inner++) {
      const factor = left[row * k + inner] ?? 0;
      for (let column = 0; column < n; column++) {
        const at = row * n + column;
        result[at] = (result[at] ?? 0) + factor * (right[(page + inner) * n + column] ?? 0);
      }
    }
  }
  return result;
}

/** Copies `input` into a larger or smaller tensor along one axis: element i goes to i + offset. */
export function shiftAxis(
  input: Tensor,
  axis: number,
  offset: number,
  target: Shape,
  result: Float64Array = new Float64Array(elementCount(target)),
): Float64Array {
  const inner = elementCount(input.shape.slice(axis + 1));
  const [own = 1, wide = 1] = [input.shape[axis], target[axis]];
  const outer = elementCount(input.shape.slice(0, axis));
  for (let page = 0; page < outer; page++) {
    for (let at = 0; at < own; at++) {
      const to = at + offset;
      if (to < 0 || to >= wide) continue;
      const from = (page * own + at) * inner;
      result.set(input.data.subarray(from, from + inner), (page * wide + to) * inner);
    }
  }
  return result;
}

/** Rows over the last axis: each becomes a distribution, or its logarithm. */
export function softmax(input: Tensor, logarithm: boolean): Float64Array {
  const width = input.shape.at(-1) ?? 1;
  const result = new Float64Array(input.data.length);
  for (let row = 0; row < input.data.length; row += width) {
    const values = input.data.subarray(row, row + width);
    const greatest = values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
    const total = values.reduce((sum, value) => sum + Math.exp(value - greatest), 0);
    for (let i = 0; i < width; i++) {
      const shifted = (values[i] ?? 0) - greatest;
      result[row + i] = logarithm ? shifted - Math.log(total) : Math.exp(shifted) / total;
    }
  }
  return result;
}
