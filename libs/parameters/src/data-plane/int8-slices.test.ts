import { kernelMemory, loadKernels } from "@heddle/kernels/kernels";
import { pattern } from "@heddle/training/testing/pattern";
import { expect, test } from "vitest";
import { partBytes, SLICE_ELEMENTS } from "../shards/compression.ts";
import { addEncodedInt8, encodeInt8 } from "./int8-slices.ts";
import { PartEncoder } from "./part-encoder.ts";

/** Two whole slices and a short one. */
const ELEMENTS = 2 * SLICE_ELEMENTS + 512;
const ENCODED_BYTES = partBytes("int8", ELEMENTS);

test("int8 slices: are laid out as a part is, and each is added to its own elements", () => {
  const memory = kernelMemory(2 * ELEMENTS * 4 + 3 * ENCODED_BYTES);
  const kernels = loadKernels(memory);
  const values = new Float32Array(memory.buffer, 0, ELEMENTS);
  const sums = new Float32Array(memory.buffer, ELEMENTS * 4, ELEMENTS);
  values.set(pattern(4, ELEMENTS));
  sums.fill(2);
  const part = Float32Array.from(values);
  // With as much room before it, a slice that goes astray stays in the memory.
  const to = 2 * ELEMENTS * 4 + ENCODED_BYTES;
  encodeInt8(kernels, to, 0, ELEMENTS);
  const layout = {
    segments: [{ parameter: "p", begin: 0, end: ELEMENTS, offset: 0 }],
    elements: ELEMENTS,
  };
  const encoder = new PartEncoder(layout, { compression: "int8", topkFraction: 0 });
  const expected = Buffer.concat(encoder.encode({ p: part }).pieces);
  expect(Buffer.from(memory.buffer, to, ENCODED_BYTES).equals(expected)).toBe(true);
  addEncodedInt8(kernels, ELEMENTS * 4, to, ELEMENTS);
  const error = sums.map((sum, i) => Math.abs(sum - 2 - (part[i] ?? 0)));
  expect(error.reduce((most, each) => Math.max(most, each))).toBeLessThan(1e-2);
});
