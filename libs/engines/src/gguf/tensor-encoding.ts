import { strict as assert } from "node:assert";

/** The tensor types that can be written. */
export type WritableTensorType = "F32" | "F16" | "Q8_0";

const Q8_BLOCK_ITEMS = 32;
const Q8_BLOCK_BYTES = 34;

/** The bytes of `values` as ggml stores them. For Q8_0 the length is a multiple of 32. */
export function encodeTensor(type: WritableTensorType, values: Float32Array): Uint8Array {
  switch (type) {
    case "F32":
      return encodeF32(values);
    case "F16":
      return encodeF16(values);
    case "Q8_0":
      return encodeQ8(values);
    default:
      return type satisfies never;
  }
}

/**
 * The bits of the half-precision number nearest to `value`, ties to even, as IEEE 754 asks;
 * too large becomes infinity.
 */
export function halfBits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  // 65520 lies half way between the largest half and the next power of two: ties go to infinity.
  if (size >= 65520) return sign | 0x7c00;
  // Below 2^-14 halves are multiples of 2^-24; above, the step doubles with each power of two.
  const exponent = size < 2 ** -14 ? -14 : Math.min(15, exponentOf(size));
  const units = roundHalfEven(size / 2 ** (exponent - 10));
  // A number that rounds up to the next power of two carries into the exponent by itself.
  return sign | (units + (exponent + 14) * 1024);
}

/** The bits of one double; one of its own for each value would cost most of the encoding. */
const double = new DataView(new ArrayBuffer(8));

function exponentOf(size: number): number {
  double.setFloat64(0, size);
  return ((double.getUint16(0) >> 4) & 0x7ff) - 1023;
}

function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}

function encodeF32(values: Float32Array): Uint8Array {
  const bytes = new Uint8Array(values.length * 4);
  const view = new DataView(bytes.buffer);
  values.forEach((value, i) => {
    view.setFloat32(i * 4, value, true);
  });
  return bytes;
}

function encodeF16(values: Float32Array): Uint8Array {
  const bytes = new Uint8Array(values.length * 2);
  const view = new DataView(bytes.buffer);
  values.forEach((value, i) => {
    view.setUint16(i * 2, halfBits(value), true);
  });
  return bytes;
}

/** ggml's quantize_row_q8_0_ref: a half-precision scale and 32 signed bytes a block. */
function encodeQ8(values: Float32Array): Uint8Array {
  assert(values.length % Q8_BLOCK_ITEMS === 0, `Q8_0 of ${values.length} values`);
  const bytes = new Uint8Array((values.length / Q8_BLOCK_ITEMS) * Q8_BLOCK_BYTES);
  const view = new DataView(bytes.buffer);
  for (let start = 0, at = 0; start < values.length; start += Q8_BLOCK_ITEMS) {
    const block = values.subarray(start, start + Q8_BLOCK_ITEMS);
    const largest = block.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const scale = Math.fround(largest / 127);
    const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
    view.setUint16(at, halfBits(scale), true);
    for (let i = 0; i < Q8_BLOCK_ITEMS; i++) {
      view.setInt8(at + 2 + i, roundAwayFromZero(Math.fround((block[i] ?? 0) * inverse)));
    }
    at += Q8_BLOCK_BYTES;
  }
  return bytes;
}

function roundAwayFromZero(value: number): number {
  return Math.sign(value) * Math.floor(Math.abs(value) + 0.5);
}
