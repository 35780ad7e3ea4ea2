// holds: serving-tensor-split

import koffi from "koffi";
import { expect, test } from "vitest";
import { setDevices } from "./device-split.ts";
import { MODEL_DEFAULTS, MODEL_PARAMS, type ModelParams, type Pointer } from "./layouts.ts";

/** What the library reads of the struct: its bytes, decoded again by the layout. */
function asRead(params: ModelParams): ModelParams {
  const type = koffi.struct(MODEL_PARAMS);
  const memory: unknown = koffi.alloc(type, 1);
  koffi.encode(memory, type, params);
  return koffi.decode(memory, type) as ModelParams;
}

function bytesAt(address: Pointer, bytes: number): ArrayBuffer {
  if (address === null) throw new Error("a null pointer");
  return koffi.view(BigInt(address), bytes).slice(0);
}

const split = { mode: "row", shares: [3, 1], mainGpu: 1 } as const;

test("device split: devices, mode, shares and main GPU reach the library's struct", () => {
  const params = { ...MODEL_DEFAULTS };
  setDevices(params, [0x1000n, 0x2000n], split);
  const read = asRead(params);
  expect([read.split_mode, read.main_gpu]).toEqual([2, 1]);
  expect([...new BigUint64Array(bytesAt(read.devices, 24))]).toEqual([0x1000n, 0x2000n, 0n]);
  const shares = new Float32Array(bytesAt(read.tensor_split, 64));
  expect([...shares]).toEqual([3, 1, ...new Array(14).fill(0)]);
});

test("device split: without shares the library divides by free memory", () => {
  const params = { ...MODEL_DEFAULTS };
  setDevices(params, [1n, 2n], { mode: "layer", shares: [], mainGpu: 0 });
  expect(asRead(params)).toMatchObject({ split_mode: 1, main_gpu: 0, tensor_split: null });
});

test("device split: one device and the CPU are not divided", () => {
  for (const devices of [[], [7n]]) {
    const params = { ...MODEL_DEFAULTS };
    setDevices(params, devices, split);
    const { split_mode, main_gpu, tensor_split } = params;
    expect({ split_mode, main_gpu, tensor_split }).toEqual({
      split_mode: MODEL_DEFAULTS.split_mode,
      main_gpu: 0,
      tensor_split: null,
    });
    const list = new BigUint64Array(bytesAt(params.devices, 8 * (devices.length + 1)));
    expect([...list]).toEqual([...devices, 0n]);
  }
});
