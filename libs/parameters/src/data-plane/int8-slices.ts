import type { Kernels } from "@heddle/kernels/kernels";
import { compressedBytes, SLICE_ELEMENTS, scaleBytes } from "../shards/compression.ts";

/** All pointers are byte offsets into the kernels' memory, multiples of 16; elements of 256. */

/** Writes float32 values as int8, slice by slice, each with its scales before it. */
export function encodeInt8(kernels: Kernels, to: number, values: number, elements: number): void {
  eachSlice(elements, (begin, count, offset) => {
    kernels.toInt8(to + offset + scaleBytes(count), to + offset, values + begin * 4, count);
  });
}

/** Adds the output of `encodeInt8` to float32 values. */
export function addEncodedInt8(
  kernels: Kernels,
  values: number,
  from: number,
  elements: number,
): void {
  eachSlice(elements, (begin, count, offset) => {
    const scales = from + offset;
    kernels.addInt8(values + begin * 4, scales + scaleBytes(count), scales, count, 1);
  });
}

function eachSlice(
  elements: number,
  visit: (begin: number, count: number, offset: number) => void,
): void {
  let offset = 0;
  for (let begin = 0; begin < elements; begin += SLICE_ELEMENTS) {
    const count = Math.min(SLICE_ELEMENTS, elements - begin);
    visit(begin, count, offset);
    offset += compressedBytes("int8", count);
  }
}
