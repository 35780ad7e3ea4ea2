import { bad, reducedShape } from "../ir/shapes.ts";
import { elementCount, type Op, type Shape, type Value } from "../ir/value.ts";
import {
  binary,
  broadcast,
  matmul,
  reduce,
  shiftAxis,
  softmax,
  transpose,
  unary,
} from "./kernels.ts";

/** What is fed under each input's name. */
export type Feeds = Readonly<Record<string, ArrayLike<number>>>;

/**
 * Evaluates values of a graph in float64, each operation by a plain loop: the slow oracle of the
 * other backends. Throws an AppError `invalid_value` for a missing or misshapen feed.
 */
export function interpret(outputs: readonly Value[], feeds: Feeds): Float64Array[] {
  const known = new Map<number, Float64Array>();
  for (const value of inOrder(outputs)) known.set(value.id, evaluate(value, known, feeds));
  return outputs.map(({ id }) => known.get(id) as Float64Array);
}

/** The values that the outputs need, inputs before their users. */
export function inOrder(outputs: readonly Value[]): Value[] {
  const found = new Map<number, Value>();
  const open = [...outputs];
  for (let value = open.pop(); value; value = open.pop()) {
    if (found.has(value.id)) continue;
    found.set(value.id, value);
    open.push(...value.inputs);
  }
  return [...found.values()].sort((a, b) => a.id - b.id);
}

function evaluate(value: Value, known: Map<number, Float64Array>, feeds: Feeds): Float64Array {
  const { op, shape } = value;
  const operands = value.inputs.map((input) => ({
    data: known.get(input.id) as Float64Array,
    shape: input.shape,
  }));
  const [a, b] = operands as [Operand, Operand];
  switch (op.kind) {
    case "input":
      return fed(op.name, shape, feeds);
    case "constant":
      return Float64Array.from(op.data);
    case "add":
    case "sub":
    case "mul":
    case "div":
    case "max":
    case "min":
    case "less":
    case "lessEqual":
      return binary(op.kind, a, b);
    case "matmul":
      return multiply(op, a, b);
    case "reduceSum":
      return reduce(a, reducedShape(a.shape, op.axes, true), 0, (sum, x) => sum + x);
    case "reduceMax":
      return reduce(a, reducedShape(a.shape, op.axes, true), Number.NEGATIVE_INFINITY, Math.max);
    case "reshape":
      return a.data;
    case "transpose":
      return transpose(a, op.permutation);
    case "broadcast":
      return broadcast(a, shape);
    case "slice":
      return shiftAxis(a, op.axis, -op.begin, shape);
    case "pad":
      return shiftAxis(a, op.axis, op.before, shape);
    case "concat":
      return join(operands, op.axis, shape);
    case "softmax":
    case "logSoftmax":
      return softmax(a, op.kind === "logSoftmax");
    case "gatherRows":
      return gather(a, b);
    case "scatterAddRows":
      return scatter(a, b, shape);
    case "oneHot":
      return hot(a, op.size);
    default:
      return unary(op.kind, a);
  }
}

interface Operand {
  readonly data: Float64Array;
  readonly shape: Shape;
}

function fed(name: string, shape: Shape, feeds: Feeds): Float64Array {
  const data = feeds[name];
  if (data?.length !== elementCount(shape)) {
    const got = data === undefined ? "nothing" : `${data.length} numbers`;
    throw bad(`the input ${name} wants the shape [${shape.join()}], got ${got}`);
  }
  return Float64Array.from(data);
}

function multiply(op: Extract<Op, { kind: "matmul" }>, a: Operand, b: Operand): Float64Array {
  const left = op.transposeLeft ? swapped(a) : a;
  const right = op.transposeRight ? swapped(b) : b;
  const batch = elementCount(left.shape.slice(0, -2));
  const [m = 1, k = 1] = left.shape.slice(-2);
  return matmul(left.data, right.data, [batch, m, k, right.shape.at(-1) ?? 1]);
}

function swapped(operand: Operand): Operand {
  const axes = operand.shape.map((_, axis) => axis);
  const permutation = [...axes.slice(0, -2), axes.length - 1, axes.length - 2];
  const shape = permutation.map((axis) => operand.shape[axis] ?? 1);
  return { data: transpose(operand, permutation), shape };
}

function join(parts: readonly Operand[], axis: number, shape: Shape): Float64Array {
  const result = new Float64Array(elementCount(shape));
  let offset = 0;
  for (const part of parts) {
    shiftAxis(part, axis, offset, shape, result);
    offset += part.shape[axis] ?? 0;
  }
  return result;
}

function gather(table: Operand, indices: Operand): Float64Array {
  const width = table.shape[1] ?? 1;
  const result = new Float64Array(indices.data.length * width);
  for (const [to, row] of indices.data.entries()) {
    checkIndex(row, table.shape[0] ?? 0);
    result.set(table.data.subarray(row * width, (row + 1) * width), to * width);
  }
  return result;
}

function scatter(values: Operand, indices: Operand, shape: Shape): Float64Array {
  const width = shape[1] ?? 1;
  const result = new Float64Array(elementCount(shape));
  for (const [from, row] of indices.data.entries()) {
    checkIndex(row, shape[0] ?? 0);
    for (let i = 0; i < width; i++) {
      const at = row * width + i;
      result[at] = (result[at] ?? 0) + (values.data[from * width + i] ?? 0);
    }
  }
  return result;
}

function hot(indices: Operand, size: number): Float64Array {
  const result = new Float64Array(indices.data.length * size);
  for (const [row, index] of indices.data.entries()) {
    checkIndex(index, size);
    result[row * size + index] = 1;
  }
  return result;
}

function checkIndex(index: number, size: number): void {
  if (!(Number.isInteger(index) && index >= 0 && index < size)) {
    throw bad(`the index ${index} is outside 0 to ${size - 1}`);
  }
}
