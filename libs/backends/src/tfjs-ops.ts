import { elementCount, type Op, type Value } from "@heddle/training/ir/value";
import type { Tensor, Tensor1D, Tensor2D } from "@tensorflow/tfjs-core";
import type { TensorFlow } from "./load-tensorflow.ts";

/** One operation of a program by TensorFlow.js, except inputs and constants. */
export function evaluateOp(
  tf: TensorFlow,
  { op, shape, inputs }: Value,
  operands: readonly Tensor[],
): Tensor {
  const [a, b] = operands as [Tensor, Tensor];
  switch (op.kind) {
    case "matmul":
      return tf.matMul(a, b, op.transposeLeft, op.transposeRight);
    case "reduceSum":
      return tf.sum(a, [...op.axes], op.keepDims);
    case "reduceMax":
      return tf.max(a, [...op.axes], op.keepDims);
    case "reshape":
      return tf.reshape(a, [...shape]);
    case "transpose":
      return tf.transpose(a, [...op.permutation]);
    case "broadcast":
      return tf.broadcastTo(a, [...shape]);
    case "slice":
      return sliced(tf, a, op);
    case "pad":
      return padded(tf, a, op);
    case "concat":
      return tf.concat([...operands], op.axis);
    case "softmax":
      return tf.softmax(a);
    case "logSoftmax":
      return tf.logSoftmax(a);
    case "gatherRows":
      return tf.gather(a, b);
    case "scatterAddRows": {
      const rows = elementCount(inputs[1]?.shape ?? []);
      const indices: Tensor1D = tf.reshape(tf.cast(b, "int32"), [rows]);
      return tf.unsortedSegmentSum(tf.reshape(a, [rows, -1]) as Tensor2D, indices, op.rows);
    }
    case "oneHot":
      return tf.cast(tf.oneHot(a, op.size), "float32");
    case "input":
    case "constant":
      throw new Error(`${op.kind} is given, not computed`);
    default:
      return elementwise(tf, op.kind, a, b);
  }
}

type ElementwiseKind = Exclude<
  Op["kind"],
  | ("matmul" | "reduceSum" | "reduceMax" | "reshape" | "transpose" | "broadcast" | "slice")
  | ("pad" | "concat" | "softmax" | "logSoftmax" | "gatherRows" | "scatterAddRows" | "oneHot")
  | ("input" | "constant")
>;

function elementwise(tf: TensorFlow, kind: ElementwiseKind, a: Tensor, b: Tensor): Tensor {
  switch (kind) {
    case "max":
      return tf.maximum(a, b);
    case "min":
      return tf.minimum(a, b);
    case "less":
      return tf.cast(tf.less(a, b), "float32");
    case "lessEqual":
      return tf.cast(tf.lessEqual(a, b), "float32");
    case "stopGradient":
      // Gradients are part of the program: TensorFlow's own are unused.
      return a.clone();
    case "add":
    case "sub":
    case "mul":
    case "div":
      return tf[kind](a, b);
    default:
      return tf[kind](a);
  }
}

function sliced(tf: TensorFlow, a: Tensor, { axis, begin, end }: Extract<Op, { kind: "slice" }>) {
  const starts = a.shape.map((_, i) => (i === axis ? begin : 0));
  const sizes = a.shape.map((size, i) => (i === axis ? end - begin : size));
  return tf.slice(a, starts, sizes);
}

function padded(tf: TensorFlow, a: Tensor, { axis, before, after }: Extract<Op, { kind: "pad" }>) {
  return tf.pad(
    a,
    a.shape.map((_, i): [number, number] => (i === axis ? [before, after] : [0, 0])),
  );
}
