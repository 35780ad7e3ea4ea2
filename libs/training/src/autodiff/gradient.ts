import type { Graph } from "../ir/graph.ts";
import { bad, broadcastShape, reducedShape } from "../ir/shapes.ts";
import {
  type BinaryKind,
  type Op,
  type Shape,
  sameShape,
  type UnaryKind,
  type Value,
} from "../ir/value.ts";

/**
 * Adds to the graph the gradients of a scalar loss, one for each of `parameters` and of its shape.
 * Reverse-mode differentiation: one pass from the loss to its inputs. A parameter that the loss
 * does not depend on has a gradient of zeros.
 */
export function gradients(graph: Graph, loss: Value, parameters: readonly Value[]): Value[] {
  if (loss.shape.length !== 0)
    throw bad(`a loss is a scalar, got the shape [${loss.shape.join()}]`);
  const needed = dependants(graph, parameters, loss.id);
  const known = new Map<number, Value>([[loss.id, graph.scalar(1)]]);
  const values = graph.values.slice(0, loss.id + 1);
  for (const value of values.toReversed()) {
    const gradient = known.get(value.id);
    if (!gradient || !needed.has(value.id)) continue;
    const backward = pullBack(graph, value, gradient, needed);
    for (const [index, part] of backward.entries()) {
      const input = value.inputs[index];
      if (!part || !input || !needed.has(input.id)) continue;
      const earlier = known.get(input.id);
      known.set(input.id, earlier ? graph.add(earlier, part) : part);
    }
  }
  return parameters.map(
    (parameter) => known.get(parameter.id) ?? graph.broadcast(graph.scalar(0), parameter.shape),
  );
}

/** Ids up to `last` of the parameters and of the values that depend on them. */
function dependants(graph: Graph, parameters: readonly Value[], last: number): Set<number> {
  const found = new Set(parameters.map(({ id }) => id));
  for (const value of graph.values.slice(0, last + 1)) {
    if (value.op.kind === "stopGradient") continue;
    if (value.inputs.some(({ id }) => found.has(id))) found.add(value.id);
  }
  return found;
}

/** The gradient of each input of a value; undefined where none passes. */
type Backward = readonly (Value | undefined)[];

function pullBack(graph: Graph, value: Value, gradient: Value, needed: Set<number>): Backward {
  const { op, inputs } = value;
  const [a, b] = inputs as [Value, Value];
  switch (op.kind) {
    case "input":
    case "constant":
    case "oneHot":
    case "reduceMax":
      return [];
    case "add":
    case "sub":
    case "mul":
    case "div":
    case "max":
    case "min":
    case "less":
    case "lessEqual":
      return binaryBack(graph, op.kind, value, gradient, needed);
    case "matmul":
      return [
        needed.has(a.id) ? leftFactor(graph, op, b, gradient) : undefined,
        needed.has(b.id) ? rightFactor(graph, op, a, gradient) : undefined,
      ];
    case "reduceSum": {
      const kept = reducedShape(a.shape, op.axes, true);
      return [graph.broadcast(graph.reshape(gradient, kept), a.shape)];
    }
    case "softmax": {
      const weighted = graph.mul(gradient, value);
      return [graph.sub(weighted, graph.mul(value, graph.sum(weighted, [-1], true)))];
    }
    case "logSoftmax":
      return [graph.sub(gradient, graph.mul(graph.exp(value), graph.sum(gradient, [-1], true)))];
    case "gatherRows":
      return [graph.scatterAddRows(gradient, b, a.shape[0] ?? 0)];
    case "scatterAddRows":
      return [graph.gatherRows(gradient, b)];
    case "reshape":
    case "transpose":
    case "broadcast":
    case "slice":
    case "pad":
    case "concat":
      return shapeBack(graph, op, inputs, gradient);
    default:
      return [unaryBack(graph, op.kind, a, value, gradient)];
  }
}

function binaryBack(
  graph: Graph,
  kind: BinaryKind,
  value: Value,
  gradient: Value,
  needed: Set<number>,
): Backward {
  const [a, b] = value.inputs as [Value, Value];
  const left = (make: () => Value) =>
    needed.has(a.id) ? sumTo(graph, make(), a.shape) : undefined;
  const right = (make: () => Value) =>
    needed.has(b.id) ? sumTo(graph, make(), b.shape) : undefined;
  switch (kind) {
    case "add":
      return [left(() => gradient), right(() => gradient)];
    case "sub":
      return [left(() => gradient), right(() => graph.neg(gradient))];
    case "mul":
      return [left(() => graph.mul(gradient, b)), right(() => graph.mul(gradient, a))];
    case "div":
      return [
        left(() => graph.div(gradient, b)),
        right(() => graph.neg(graph.div(graph.mul(gradient, value), b))),
      ];
    case "max":
    case "min": {
      // Where both are equal the left operand receives the whole gradient.
      const chosen = kind === "max" ? graph.lessEqual(b, a) : graph.lessEqual(a, b);
      return [
        left(() => graph.mul(gradient, chosen)),
        right(() => graph.mul(gradient, graph.sub(1, chosen))),
      ];
    }
    case "less":
    case "lessEqual":
      return [];
    default:
      return kind satisfies never;
  }
}

function unaryBack(
  graph: Graph,
  kind: UnaryKind,
  input: Value,
  value: Value,
  gradient: Value,
): Value | undefined {
  switch (kind) {
    case "neg":
      return graph.neg(gradient);
    case "exp":
      return graph.mul(gradient, value);
    case "log":
      return graph.div(gradient, input);
    case "sqrt":
      return graph.div(graph.mul(gradient, 0.5), value);
    case "tanh":
      return graph.mul(gradient, graph.sub(1, graph.square(value)));
    case "sigmoid":
      return graph.mul(gradient, graph.mul(value, graph.sub(1, value)));
    case "relu":
      return graph.mul(gradient, graph.unary("sign", value));
    case "abs":
      return graph.mul(gradient, graph.unary("sign", input));
    case "sign":
    case "stopGradient":
      return undefined;
    default:
      return kind satisfies never;
  }
}

type ShapeOp = Extract<
  Op,
  { kind: "reshape" | "transpose" | "broadcast" | "slice" | "pad" | "concat" }
>;

function shapeBack(graph: Graph, op: ShapeOp, inputs: readonly Value[], gradient: Value): Backward {
  const input = inputs[0] as Value;
  switch (op.kind) {
    case "reshape":
      return [graph.reshape(gradient, input.shape)];
    case "transpose": {
      const inverse = op.permutation.map((_, axis) => op.permutation.indexOf(axis));
      return [graph.transpose(gradient, inverse)];
    }
    case "broadcast":
      return [sumTo(graph, gradient, input.shape)];
    case "slice": {
      const size = input.shape[op.axis] ?? 0;
      return [graph.pad(gradient, op.axis, op.begin, size - op.end)];
    }
    case "pad": {
      const size = input.shape[op.axis] ?? 0;
      return [graph.slice(gradient, op.axis, op.before, op.before + size)];
    }
    case "concat": {
      let begin = 0;
      return inputs.map((part) => {
        const end = begin + (part.shape[op.axis] ?? 0);
        const piece = graph.slice(gradient, op.axis, begin, end);
        begin = end;
        return piece;
      });
    }
    default:
      return op satisfies never;
  }
}

type Matmul = Extract<Op, { kind: "matmul" }>;

/** The gradient of the left operand of `left x right`. */
function leftFactor(graph: Graph, op: Matmul, right: Value, gradient: Value): Value {
  if (!op.transposeLeft)
    return graph.matmul(gradient, right, { transposeRight: !op.transposeRight });
  return graph.matmul(right, gradient, { transposeLeft: op.transposeRight, transposeRight: true });
}

function rightFactor(graph: Graph, op: Matmul, left: Value, gradient: Value): Value {
  if (!op.transposeRight) return graph.matmul(left, gradient, { transposeLeft: !op.transposeLeft });
  return graph.matmul(gradient, left, { transposeLeft: true, transposeRight: op.transposeLeft });
}

/** Undoes a broadcast: sums over the axes that were stretched or added. */
function sumTo(graph: Graph, gradient: Value, shape: Shape): Value {
  const full = broadcastShape("gradient", gradient.shape, shape);
  const spread = graph.broadcast(gradient, full);
  if (sameShape(full, shape)) return spread;
  const added = full.length - shape.length;
  const axes = full.flatMap((size, axis) => {
    const stretched = axis < added || (shape[axis - added] === 1 && size !== 1);
    return stretched ? [axis] : [];
  });
  return graph.reshape(graph.sum(spread, axes), shape);
}
