import type { ElementType, Shape } from "../ir/value.ts";
import { ProtobufWriter } from "./protobuf-writer.ts";

/** The messages of ONNX (onnx.proto of release 1.17) that a training graph needs. */

/** TensorProto.DataType. */
export const ONNX_FLOAT = 1;
export const ONNX_INT32 = 6;
export const ONNX_INT64 = 7;
export const ONNX_BOOL = 9;

const IR_VERSION = 9;
const OPSET = 18;

/** An attribute of a node: an integer, a list of them, a text, a float or a graph. */
export type Attribute =
  | number
  | string
  | readonly number[]
  | { readonly float: number }
  | { readonly graph: ProtobufWriter };

export interface OnnxNode {
  readonly type: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, Attribute>> | undefined;
}

/** A tensor's name, ONNX data type and shape. */
export interface OnnxValue {
  readonly name: string;
  readonly type: number;
  readonly shape: Shape;
}

export function onnxType(type: ElementType): number {
  return type === "f32" ? ONNX_FLOAT : ONNX_INT32;
}

function nodeMessage(node: OnnxNode): ProtobufWriter {
  const message = new ProtobufWriter();
  for (const input of node.inputs) message.text(1, input);
  for (const output of node.outputs) message.text(2, output);
  message.text(4, node.type);
  for (const [name, value] of Object.entries(node.attributes ?? {})) {
    message.message(5, attributeMessage(name, value));
  }
  return message;
}

function attributeMessage(name: string, value: Attribute): ProtobufWriter {
  const message = new ProtobufWriter().text(1, name);
  if (typeof value === "number") return message.integer(3, value).integer(20, 2);
  if (typeof value === "string") return message.text(4, value).integer(20, 3);
  if ("float" in value) return message.float(2, value.float).integer(20, 1);
  if ("graph" in value) return message.message(6, value.graph).integer(20, 5);
  for (const item of value) message.integer(8, item);
  return message.integer(20, 7);
}

/** A constant; `data` in the machine's (little-endian) layout. */
export function tensorMessage(value: OnnxValue, data: Uint8Array): ProtobufWriter {
  const message = new ProtobufWriter();
  for (const size of value.shape) message.integer(1, size);
  return message.integer(2, value.type).text(8, value.name).bytes(9, data);
}

function valueMessage({ name, type, shape }: OnnxValue): ProtobufWriter {
  const dimensions = new ProtobufWriter();
  for (const size of shape) dimensions.message(1, new ProtobufWriter().integer(1, size));
  const tensor = new ProtobufWriter().integer(1, type).message(2, dimensions);
  return new ProtobufWriter().text(1, name).message(2, new ProtobufWriter().message(1, tensor));
}

export interface GraphParts {
  readonly name: string;
  readonly nodes: readonly OnnxNode[];
  readonly initializers: readonly ProtobufWriter[];
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
}

export function graphMessage(parts: GraphParts): ProtobufWriter {
  const message = new ProtobufWriter();
  for (const node of parts.nodes) message.message(1, nodeMessage(node));
  message.text(2, parts.name);
  for (const initializer of parts.initializers) message.message(5, initializer);
  for (const input of parts.inputs) message.message(11, valueMessage(input));
  for (const output of parts.outputs) message.message(12, valueMessage(output));
  return message;
}

/** A whole model of standard operators only, as a file's bytes. */
export function modelBytes(graph: ProtobufWriter): Uint8Array<ArrayBuffer> {
  const opset = new ProtobufWriter().text(1, "").integer(2, OPSET);
  return new ProtobufWriter()
    .integer(1, IR_VERSION)
    .text(2, "heddle")
    .message(7, graph)
    .message(8, opset)
    .finish();
}
