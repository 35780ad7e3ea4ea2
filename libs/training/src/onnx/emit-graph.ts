import { type Op, type Shape, sameShape, type Value } from "../ir/value.ts";
import { inOrder } from "../reference/interpreter.ts";
import {
  type Attribute,
  ONNX_FLOAT,
  ONNX_INT32,
  ONNX_INT64,
  type OnnxNode,
  type OnnxValue,
  tensorMessage,
} from "./onnx-messages.ts";
import type { ProtobufWriter } from "./protobuf-writer.ts";

/** The nodes and constants that compute some values, in ONNX's standard operators. */
export interface Emitted {
  readonly nodes: OnnxNode[];
  readonly initializers: ProtobufWriter[];
  /** The tensor's name in the emitted graph; each requested value has one. */
  readonly nameOf: (value: Value) => string;
}

const SIMPLE: Partial<Record<Op["kind"], string>> = {
  add: "Add",
  sub: "Sub",
  mul: "Mul",
  div: "Div",
  max: "Max",
  min: "Min",
  neg: "Neg",
  exp: "Exp",
  log: "Log",
  sqrt: "Sqrt",
  tanh: "Tanh",
  sigmoid: "Sigmoid",
  relu: "Relu",
  abs: "Abs",
  sign: "Sign",
  stopGradient: "Identity",
};

/**
 * Emits the nodes that the values need. New names begin with `prefix`; `inputName` gives the name
 * of an input's tensor.
 */
export function emitGraph(
  values: readonly Value[],
  prefix: string,
  inputName: (input: string) => string,
): Emitted {
  return new Emitter(values, prefix, inputName).emit();
}

class Emitter {
  readonly #values: readonly Value[];
  readonly #wanted: ReadonlySet<number>;
  readonly #prefix: string;
  readonly #inputName: (input: string) => string;
  readonly #nodes: OnnxNode[] = [];
  readonly #initializers: ProtobufWriter[] = [];
  readonly #integers = new Map<string, string>();
  readonly #uses = new Map<number, number>();
  /** Matrix products that were fused into a Gemm with a bias. */
  readonly #fused = new Set<number>();
  #made = 0;

  constructor(values: readonly Value[], prefix: string, inputName: (input: string) => string) {
    this.#values = inOrder(values);
    this.#wanted = new Set(values.map(({ id }) => id));
    this.#prefix = prefix;
    this.#inputName = inputName;
    for (const { inputs } of this.#values) {
      for (const { id } of inputs) this.#uses.set(id, (this.#uses.get(id) ?? 0) + 1);
    }
  }

  emit(): Emitted {
    for (const value of this.#values) {
      const product = this.#biased(value);
      if (product) this.#fused.add(product.id);
    }
    for (const value of this.#values) {
      const node = this.#fused.has(value.id) ? undefined : this.#nodeFor(value);
      if (node) this.#nodes.push(node);
    }
    return {
      nodes: this.#nodes,
      initializers: this.#initializers,
      nameOf: (value) => this.#name(value),
    };
  }

  #name(value: Value): string {
    if (value.op.kind === "input") return this.#inputName(value.op.name);
    return `${this.#prefix}v${value.id}`;
  }

  /**
   * The node that produces the value; nodes that it needs besides its inputs are pushed before it.
   */
  #nodeFor(value: Value): OnnxNode | undefined {
    const { op, inputs, shape } = value;
    const [a, b] = inputs as [Value, Value];
    const simple = SIMPLE[op.kind];
    if (simple) return this.#emitSimple(value, simple);
    switch (op.kind) {
      case "input":
        return undefined;
      case "constant":
        this.#emitConstant(value, op.data);
        return undefined;
      case "less":
      case "lessEqual": {
        const mask = this.#node(op.kind === "less" ? "Less" : "LessOrEqual", inputs);
        return this.#to(value, "Cast", [mask], { to: ONNX_FLOAT });
      }
      case "matmul":
        return this.#emitMatmul(value, op);
      case "reduceSum":
      case "reduceMax": {
        const type = op.kind === "reduceSum" ? "ReduceSum" : "ReduceMax";
        const attributes = { keepdims: op.keepDims ? 1 : 0 };
        return this.#to(value, type, [this.#name(a), this.#ints(op.axes)], attributes);
      }
      case "reshape":
        return this.#to(value, "Reshape", [this.#name(a), this.#ints(shape)]);
      case "broadcast":
        return this.#to(value, "Expand", [this.#name(a), this.#ints(shape)]);
      case "transpose":
        return this.#to(value, "Transpose", [this.#name(a)], { perm: op.permutation });
      case "slice": {
        const ends = [[op.begin], [op.end], [op.axis]].map((list) => this.#ints(list));
        return this.#to(value, "Slice", [this.#name(a), ...ends]);
      }
      case "pad": {
        const pads = this.#ints([op.before, op.after]);
        return this.#to(value, "Pad", [this.#name(a), pads, "", this.#ints([op.axis])]);
      }
      case "concat":
        return this.#to(value, "Concat", this.#names(inputs), { axis: op.axis });
      case "softmax":
        return this.#to(value, "Softmax", this.#names(inputs), { axis: -1 });
      case "logSoftmax":
        return this.#to(value, "LogSoftmax", this.#names(inputs), { axis: -1 });
      case "gatherRows":
        return this.#to(value, "Gather", [this.#name(a), this.#name(b)], { axis: 0 });
      case "scatterAddRows":
        return this.#emitScatter(value, a, b);
      case "oneHot":
        return this.#emitOneHot(value, op.size, a);
      default:
        throw new Error(`no ONNX operator corresponds to ${op.kind}`);
    }
  }

  /** A sum of a plain matrix product that is used nowhere else, left, and a bias, right. */
  #biased(value: Value): Value | undefined {
    if (value.op.kind !== "add") return undefined;
    const [product, bias] = value.inputs as [Value, Value];
    const plain = product.op.kind === "matmul" && product.shape.length === 2;
    const alone = this.#uses.get(product.id) === 1 && !this.#wanted.has(product.id);
    const fits = sameShape(value.shape, product.shape) && bias.shape.length <= 2;
    return plain && alone && fits ? product : undefined;
  }

  #emitSimple(value: Value, type: string): OnnxNode {
    const product = this.#biased(value);
    if (!product) return this.#to(value, type, this.#names(value.inputs));
    const bias = value.inputs[1] as Value;
    const op = product.op as Extract<Op, { kind: "matmul" }>;
    const inputs = [...this.#names(product.inputs), this.#name(bias)];
    return this.#to(value, "Gemm", inputs, gemmFlags(op));
  }

  #emitMatmul(value: Value, op: Extract<Op, { kind: "matmul" }>): OnnxNode {
    const [a, b] = value.inputs as [Value, Value];
    if (value.shape.length === 2) {
      return this.#to(value, "Gemm", this.#names(value.inputs), gemmFlags(op));
    }
    const left = op.transposeLeft ? this.#swapped(a) : this.#name(a);
    const right = op.transposeRight ? this.#swapped(b) : this.#name(b);
    return this.#to(value, "MatMul", [left, right]);
  }

  #swapped(value: Value): string {
    const axes = value.shape.map((_, axis) => axis);
    const perm = [...axes.slice(0, -2), axes.length - 1, axes.length - 2];
    return this.#node("Transpose", [value], { perm });
  }

  #emitScatter(value: Value, rows: Value, indices: Value): OnnxNode {
    const width = value.shape[1] ?? 1;
    const count = indices.shape.reduce((product, size) => product * size, 1);
    const zeros = this.#fresh();
    this.#push("ConstantOfShape", [this.#ints(value.shape)], zeros);
    const wide = this.#fresh();
    this.#push("Cast", [this.#name(indices)], wide, { to: ONNX_INT64 });
    const column = this.#fresh();
    this.#push("Reshape", [wide, this.#ints([count, 1])], column);
    const flat = this.#fresh();
    this.#push("Reshape", [this.#name(rows), this.#ints([count, width])], flat);
    return this.#to(value, "ScatterND", [zeros, column, flat], { reduction: "add" });
  }

  #emitOneHot(value: Value, size: number, indices: Value): OnnxNode {
    // The CPU has no kernel for 32-bit indices with a 64-bit size.
    const depth = this.#constant({ type: ONNX_INT32, shape: [1] }, Int32Array.of(size));
    const values = this.#constant({ type: ONNX_FLOAT, shape: [2] }, Float32Array.of(0, 1));
    return this.#to(value, "OneHot", [this.#name(indices), depth, values], { axis: -1 });
  }

  #emitConstant(value: Value, data: ArrayLike<number>): void {
    const tensor = { name: this.#name(value), type: ONNX_FLOAT, shape: value.shape };
    this.#initializers.push(tensorMessage(tensor, bytesOf(Float32Array.from(data))));
  }

  /** A list of integers as a constant; the same list is emitted once. */
  #ints(list: Shape): string {
    const key = list.join();
    const known = this.#integers.get(key);
    if (known) return known;
    const data = BigInt64Array.from(list, BigInt);
    const name = this.#constant({ type: ONNX_INT64, shape: [list.length] }, data);
    this.#integers.set(key, name);
    return name;
  }

  #constant(spec: Omit<OnnxValue, "name">, data: NumberArray): string {
    const name = this.#fresh();
    this.#initializers.push(tensorMessage({ ...spec, name }, bytesOf(data)));
    return name;
  }

  #node(type: string, inputs: readonly Value[], attributes?: Record<string, Attribute>): string {
    const name = this.#fresh();
    this.#push(type, this.#names(inputs), name, attributes);
    return name;
  }

  #to(
    value: Value,
    type: string,
    inputs: readonly string[],
    attributes?: Record<string, Attribute>,
  ): OnnxNode {
    return { type, inputs, outputs: [this.#name(value)], attributes };
  }

  #push(
    type: string,
    inputs: readonly string[],
    output: string,
    attributes?: Record<string, Attribute>,
  ): void {
    this.#nodes.push({ type, inputs, outputs: [output], attributes });
  }

  #names(values: readonly Value[]): string[] {
    return values.map((value) => this.#name(value));
  }

  #fresh(): string {
    return `${this.#prefix}t${this.#made++}`;
  }
}

function gemmFlags(op: Extract<Op, { kind: "matmul" }>): Record<string, number> {
  return { transA: op.transposeLeft ? 1 : 0, transB: op.transposeRight ? 1 : 0 };
}

type NumberArray = Float32Array | Int32Array | BigInt64Array;

function bytesOf(data: NumberArray): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}
