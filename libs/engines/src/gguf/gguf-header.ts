import { strict as assert } from "node:assert";
import {
  alignUp,
  DEFAULT_ALIGNMENT_BYTES,
  GGUF_MAGIC,
  GGUF_VERSION,
  type GgufScalarType,
  type GgufValue,
  MAX_DIMENSIONS,
  SCALAR_BYTES,
  SCALAR_TYPES,
  TENSOR_LAYOUTS,
} from "./gguf-format.ts";

/** A tensor of a file to write. */
export interface GgufEntry {
  readonly name: string;
  /** Sizes in ggml's order: the first is the length of a row, whose values lie together. */
  readonly shape: readonly number[];
  /** For example `Q4_K`. */
  readonly type: string;
}

/** Where the parts of a file to write are. */
export interface GgufLayout {
  /** From the start of the file to the first tensor. */
  readonly header: Uint8Array;
  /** Indexed by tensor, in the given order: bytes from the start of the file, and its size. */
  readonly places: readonly { readonly offset: number; readonly sizeBytes: number }[];
  /** The whole file, its last tensor padded. */
  readonly sizeBytes: number;
}

/** Lays out a file of GGUF version 3; `general.alignment` (uint32) sets the alignment. */
export function layOutGguf(
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly GgufEntry[],
): GgufLayout {
  const alignment = alignmentOf(metadata);
  const relative: number[] = [];
  let dataBytes = 0;
  for (const tensor of tensors) {
    relative.push(dataBytes);
    dataBytes += alignUp(bytesOf(tensor), alignment);
  }
  const header = padded(encodeHeader(metadata, tensors, relative), alignment);
  const places = tensors.map((tensor, i) => ({
    offset: header.length + relative[i]!,
    sizeBytes: bytesOf(tensor),
  }));
  return { header, places, sizeBytes: header.length + dataBytes };
}

function alignmentOf(metadata: ReadonlyMap<string, GgufValue>): number {
  const value = metadata.get("general.alignment");
  if (value === undefined) return DEFAULT_ALIGNMENT_BYTES;
  assert(value.type === "uint32", "general.alignment is a uint32");
  assert(
    value.value >= 8 && Number.isInteger(Math.log2(value.value)),
    "general.alignment is a power of two of at least 8",
  );
  return value.value;
}

function encodeHeader(
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly GgufEntry[],
  offsets: readonly number[],
): Uint8Array {
  const out = new ByteSink();
  out.scalar("uint32", GGUF_MAGIC);
  out.scalar("uint32", GGUF_VERSION);
  out.scalar("uint64", BigInt(tensors.length));
  out.scalar("uint64", BigInt(metadata.size));
  for (const [key, value] of metadata) {
    out.scalar("string", key);
    encodeValue(out, value);
  }
  const names = new Set<string>();
  for (const [i, tensor] of tensors.entries()) {
    assert(!names.has(tensor.name), `two tensors are named ${tensor.name}`);
    names.add(tensor.name);
    encodeTensorInfo(out, tensor, offsets[i]!);
  }
  return out.bytes();
}

function encodeValue(out: ByteSink, value: GgufValue): void {
  out.scalar("uint32", SCALAR_TYPES.indexOf(value.type));
  if (value.type !== "array") {
    out.scalar(value.type, value.value);
    return;
  }
  out.scalar("uint32", SCALAR_TYPES.indexOf(value.items));
  out.scalar("uint64", BigInt(value.value.length));
  for (const item of value.value) out.scalar(value.items, item);
}

function encodeTensorInfo(out: ByteSink, tensor: GgufEntry, offset: number): void {
  const dimensions = tensor.shape.length;
  assert(dimensions >= 1 && dimensions <= MAX_DIMENSIONS, `${tensor.name}: ${dimensions} sizes`);
  out.scalar("string", tensor.name);
  out.scalar("uint32", dimensions);
  for (const size of tensor.shape) out.scalar("uint64", BigInt(size));
  out.scalar("uint32", layoutOf(tensor.type).id);
  out.scalar("uint64", BigInt(offset));
}

/** Values of a tensor. */
export function tensorItems(tensor: GgufEntry): number {
  return tensor.shape.reduce((product, size) => product * size, 1);
}

function bytesOf(tensor: GgufEntry): number {
  const { blockItems, blockBytes } = layoutOf(tensor.type);
  const row = tensor.shape[0] ?? 0;
  assert(row % blockItems === 0, `${tensor.name}: rows of ${row} values cannot be ${tensor.type}`);
  return (tensorItems(tensor) / blockItems) * blockBytes;
}

function layoutOf(type: string) {
  for (const [id, layout] of TENSOR_LAYOUTS) if (layout.name === type) return { id, ...layout };
  throw new Error(`${type} is not in the table of tensor types`);
}

function padded(bytes: Uint8Array, alignment: number): Uint8Array {
  const out = new Uint8Array(alignUp(bytes.length, alignment));
  out.set(bytes);
  return out;
}

type GgufScalar = number | bigint | boolean | string;

const SETTERS: Readonly<
  Record<Exclude<GgufScalarType, "string">, (view: DataView, at: number, value: GgufScalar) => void>
> = {
  uint8: (view, at, value) => view.setUint8(at, Number(value)),
  int8: (view, at, value) => view.setInt8(at, Number(value)),
  uint16: (view, at, value) => view.setUint16(at, Number(value), true),
  int16: (view, at, value) => view.setInt16(at, Number(value), true),
  uint32: (view, at, value) => view.setUint32(at, Number(value), true),
  int32: (view, at, value) => view.setInt32(at, Number(value), true),
  float32: (view, at, value) => view.setFloat32(at, Number(value), true),
  float64: (view, at, value) => view.setFloat64(at, Number(value), true),
  bool: (view, at, value) => view.setUint8(at, value ? 1 : 0),
  uint64: (view, at, value) => view.setBigUint64(at, BigInt(value), true),
  int64: (view, at, value) => view.setBigInt64(at, BigInt(value), true),
};

/** Grows as it is written; little-endian. */
class ByteSink {
  #bytes = new Uint8Array(4096);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  scalar(type: GgufScalarType, value: GgufScalar): void {
    if (type === "string") this.#string(String(value));
    else this.#fixed(type, value);
  }

  #fixed(type: Exclude<GgufScalarType, "string">, value: GgufScalar): void {
    const at = this.#claim(SCALAR_BYTES[type]);
    SETTERS[type](this.#view, at, value);
  }

  #string(text: string): void {
    const utf8 = new TextEncoder().encode(text);
    this.scalar("uint64", BigInt(utf8.length));
    // Claimed first: what is claimed may lie in larger memory than there was before.
    const at = this.#claim(utf8.length);
    this.#bytes.set(utf8, at);
  }

  #claim(length: number): number {
    const at = this.#length;
    this.#length += length;
    if (this.#length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.#length, this.#bytes.length * 2));
      larger.set(this.#bytes);
      this.#bytes = larger;
      this.#view = new DataView(larger.buffer);
    }
    return at;
  }
}
