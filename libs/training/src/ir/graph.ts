import {
  bad,
  broadcastShape,
  concatShape,
  matmulShape,
  normalAxes,
  permutedShape,
  reducedShape,
  reshapedShape,
  slicedShape,
} from "./shapes.ts";
import {
  type BinaryKind,
  type ElementType,
  elementCount,
  type Op,
  type Shape,
  sameShape,
  type UnaryKind,
  type Value,
} from "./value.ts";

/** A tensor, or a number for a constant. */
export type Operand = Value | number;

/**
 * Builds a training program, operation by operation. Shapes are checked at each step: a method
 * throws an AppError `invalid_value` where they do not fit. The order of ids is a valid order of
 * evaluation.
 */
export class Graph {
  readonly #values: Value[] = [];
  readonly #scalars = new Map<number, Value>();
  readonly #names = new Set<string>();

  get values(): readonly Value[] {
    return this.#values;
  }

  /** A tensor that the caller feeds. Throws where the name is taken. */
  input(name: string, shape: Shape, type: ElementType = "f32"): Value {
    if (this.#names.has(name)) throw bad(`the graph has an input ${name} already`);
    if (!shape.every((size) => Number.isInteger(size) && size > 0)) {
      throw bad(`the input ${name} has the shape [${shape.join()}]; sizes are positive integers`);
    }
    this.#names.add(name);
    return this.#add({ kind: "input", name }, [], shape, type);
  }

  constant(data: readonly number[] | Float32Array, shape: Shape): Value {
    if (data.length !== elementCount(shape)) {
      throw bad(`a constant of ${data.length} numbers does not fit the shape [${shape.join()}]`);
    }
    return this.#add({ kind: "constant", data }, [], shape);
  }

  scalar(value: number): Value {
    const known = this.#scalars.get(value);
    if (known) return known;
    const made = this.constant([value], []);
    this.#scalars.set(value, made);
    return made;
  }

  add(left: Operand, right: Operand): Value {
    return this.#binary("add", left, right);
  }

  sub(left: Operand, right: Operand): Value {
    return this.#binary("sub", left, right);
  }

  mul(left: Operand, right: Operand): Value {
    return this.#binary("mul", left, right);
  }

  div(left: Operand, right: Operand): Value {
    return this.#binary("div", left, right);
  }

  max(left: Operand, right: Operand): Value {
    return this.#binary("max", left, right);
  }

  min(left: Operand, right: Operand): Value {
    return this.#binary("min", left, right);
  }

  /** 1 where left < right, else 0; no gradient. */
  less(left: Operand, right: Operand): Value {
    return this.#binary("less", left, right);
  }

  lessEqual(left: Operand, right: Operand): Value {
    return this.#binary("lessEqual", left, right);
  }

  clip(value: Value, low: number, high: number): Value {
    return this.min(this.max(value, low), high);
  }

  unary(kind: UnaryKind, value: Value): Value {
    return this.#add({ kind }, [value], value.shape);
  }

  neg(value: Value): Value {
    return this.unary("neg", value);
  }

  exp(value: Value): Value {
    return this.unary("exp", value);
  }

  log(value: Value): Value {
    return this.unary("log", value);
  }

  sqrt(value: Value): Value {
    return this.unary("sqrt", value);
  }

  tanh(value: Value): Value {
    return this.unary("tanh", value);
  }

  sigmoid(value: Value): Value {
    return this.unary("sigmoid", value);
  }

  relu(value: Value): Value {
    return this.unary("relu", value);
  }

  abs(value: Value): Value {
    return this.unary("abs", value);
  }

  /** The value as a constant for differentiation. */
  stopGradient(value: Value): Value {
    return this.unary("stopGradient", value);
  }

  square(value: Value): Value {
    return this.mul(value, value);
  }

  /** x * sigmoid(x), also called swish. */
  silu(value: Value): Value {
    return this.mul(value, this.sigmoid(value));
  }

  matmul(left: Value, right: Value, { transposeLeft = false, transposeRight = false } = {}): Value {
    const flags = { transposeLeft, transposeRight };
    const shape = matmulShape(left.shape, right.shape, flags);
    return this.#add({ kind: "matmul", ...flags }, [left, right], shape);
  }

  /** Sums over the axes (negative ones count from the end), or over all. */
  sum(value: Value, axes?: readonly number[], keepDims = false): Value {
    return this.#reduce("reduceSum", value, axes, keepDims);
  }

  /** The greatest along the axes; no gradient passes. */
  maxOver(value: Value, axes?: readonly number[], keepDims = false): Value {
    return this.#reduce("reduceMax", value, axes, keepDims);
  }

  mean(value: Value, axes?: readonly number[], keepDims = false): Value {
    const sum = this.sum(value, axes, keepDims);
    return this.mul(sum, elementCount(sum.shape) / elementCount(value.shape));
  }

  /** One size may be -1: the remaining elements. */
  reshape(value: Value, target: Shape): Value {
    const shape = reshapedShape(value.shape, target);
    if (sameShape(shape, value.shape)) return value;
    return this.#add({ kind: "reshape" }, [value], shape, value.type);
  }

  transpose(value: Value, permutation: readonly number[]): Value {
    const shape = permutedShape(value.shape, permutation);
    return this.#add({ kind: "transpose", permutation: [...permutation] }, [value], shape);
  }

  broadcast(value: Value, shape: Shape): Value {
    if (sameShape(value.shape, shape)) return value;
    if (!sameShape(broadcastShape("broadcast", value.shape, shape), shape)) {
      throw bad(`broadcast: [${value.shape.join()}] does not stretch to [${shape.join()}]`);
    }
    return this.#add({ kind: "broadcast" }, [value], shape);
  }

  slice(value: Value, axis: number, begin: number, end: number): Value {
    const [at = 0] = normalAxes("slice", value.shape, [axis]);
    const shape = slicedShape(value.shape, at, begin, end);
    return this.#add({ kind: "slice", axis: at, begin, end }, [value], shape, value.type);
  }

  pad(value: Value, axis: number, before: number, after: number): Value {
    const [at = 0] = normalAxes("pad", value.shape, [axis]);
    const shape = value.shape.map((size, i) => (i === at ? size + before + after : size));
    return this.#add({ kind: "pad", axis: at, before, after }, [value], shape);
  }

  concat(values: readonly Value[], axis: number): Value {
    const [at = 0] = normalAxes("concat", values[0]?.shape ?? [], [axis]);
    const shape = concatShape(
      values.map((value) => value.shape),
      at,
    );
    return this.#add({ kind: "concat", axis: at }, values, shape);
  }

  softmax(value: Value): Value {
    return this.#add({ kind: "softmax" }, [value], value.shape);
  }

  logSoftmax(value: Value): Value {
    return this.#add({ kind: "logSoftmax" }, [value], value.shape);
  }

  /** Table [v, d] and i32 indices [...] to [..., d]. */
  gatherRows(table: Value, indices: Value): Value {
    const [, width] = table.shape;
    if (table.shape.length !== 2 || width === undefined || indices.type !== "i32") {
      throw bad(`gatherRows: expected a table [v, d] and i32 indices, got [${table.shape.join()}]`);
    }
    return this.#add({ kind: "gatherRows" }, [table, indices], [...indices.shape, width]);
  }

  scatterAddRows(values: Value, indices: Value, rows: number): Value {
    const width = values.shape.at(-1);
    if (width === undefined || !sameShape(values.shape.slice(0, -1), indices.shape)) {
      throw bad(`scatterAddRows: [${values.shape.join()}] has no row for each index`);
    }
    return this.#add({ kind: "scatterAddRows", rows }, [values, indices], [rows, width]);
  }

  oneHot(indices: Value, size: number): Value {
    if (indices.type !== "i32") throw bad("oneHot: the indices are i32");
    return this.#add({ kind: "oneHot", size }, [indices], [...indices.shape, size]);
  }

  #binary(kind: BinaryKind, left: Operand, right: Operand): Value {
    const [a, b] = [this.#value(left), this.#value(right)];
    return this.#add({ kind }, [a, b], broadcastShape(kind, a.shape, b.shape));
  }

  #reduce(
    kind: "reduceSum" | "reduceMax",
    value: Value,
    axes: readonly number[] | undefined,
    keepDims: boolean,
  ): Value {
    const over = normalAxes(kind, value.shape, axes ?? value.shape.map((_, axis) => axis));
    if (over.length === 0) return value;
    const shape = reducedShape(value.shape, over, keepDims);
    return this.#add({ kind, axes: over, keepDims }, [value], shape);
  }

  #value(operand: Operand): Value {
    return typeof operand === "number" ? this.scalar(operand) : operand;
  }

  #add(op: Op, inputs: readonly Value[], shape: Shape, type: ElementType = "f32"): Value {
    if (op.kind !== "gatherRows" && op.kind !== "scatterAddRows" && op.kind !== "oneHot") {
      const foreign = inputs.some((input) => input.type !== type);
      if (foreign) throw bad(`${op.kind}: indices (i32) are for gatherRows and oneHot alone`);
    }
    const value: Value = { id: this.#values.length, shape, type, op, inputs };
    this.#values.push(value);
    return value;
  }
}
