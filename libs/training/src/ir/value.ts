/** The plain data of a training program: values, and the operations that produce them. */

/** Sizes of the axes, slowest first; empty for a scalar. */
export type Shape = readonly number[];

/** `f32` has numbers and 0/1 masks; `i32` has indices and no gradient. */
export type ElementType = "f32" | "i32";

/** One tensor in a graph. Its id is its position in the graph: inputs of a node have lower ids. */
export interface Value {
  readonly id: number;
  readonly shape: Shape;
  readonly type: ElementType;
  readonly op: Op;
  readonly inputs: readonly Value[];
}

/** Two operands of shapes that broadcast as NumPy's do; comparisons give 1 or 0. */
export type BinaryKind = "add" | "sub" | "mul" | "div" | "max" | "min" | "less" | "lessEqual";

/** One operand, element by element. */
export type UnaryKind =
  | "neg"
  | "exp"
  | "log"
  | "sqrt"
  | "tanh"
  | "sigmoid"
  | "relu"
  | "abs"
  | "sign"
  | "stopGradient";

export type Op =
  /** Fed by the caller under its name: a parameter, a batch of data, optimizer state. */
  | { readonly kind: "input"; readonly name: string }
  | { readonly kind: "constant"; readonly data: readonly number[] | Float32Array }
  | { readonly kind: BinaryKind }
  | { readonly kind: UnaryKind }
  /** [..., m, k] x [..., k, n]; a flag swaps the operand's last two axes. */
  | { readonly kind: "matmul"; readonly transposeLeft: boolean; readonly transposeRight: boolean }
  | { readonly kind: "reduceSum"; readonly axes: readonly number[]; readonly keepDims: boolean }
  | { readonly kind: "reduceMax"; readonly axes: readonly number[]; readonly keepDims: boolean }
  | { readonly kind: "reshape" }
  | { readonly kind: "transpose"; readonly permutation: readonly number[] }
  | { readonly kind: "broadcast" }
  | {
      readonly kind: "slice";
      readonly axis: number;
      readonly begin: number;
      readonly end: number;
    }
  /** Zeros before and after along one axis: the inverse of `slice`. */
  | {
      readonly kind: "pad";
      readonly axis: number;
      readonly before: number;
      readonly after: number;
    }
  | { readonly kind: "concat"; readonly axis: number }
  /** Over the last axis. */
  | { readonly kind: "softmax" }
  | { readonly kind: "logSoftmax" }
  /** Table [v, d] and indices [...] to rows [..., d]. */
  | { readonly kind: "gatherRows" }
  /**
   * Rows [..., d] and indices [...] to a table [v, d]: each row of the table is the sum of its
   * rows.
   */
  | { readonly kind: "scatterAddRows"; readonly rows: number }
  /** Indices [...] to [..., size]: 1 at the index, else 0. */
  | { readonly kind: "oneHot"; readonly size: number };

export function elementCount(shape: Shape): number {
  return shape.reduce((product, size) => product * size, 1);
}

export function sameShape(left: Shape, right: Shape): boolean {
  return left.length === right.length && left.every((size, axis) => size === right[axis]);
}
