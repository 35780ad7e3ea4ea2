import { type GpuSplit, SPLIT_MODES } from "@heddle/contracts/models/model-division";
import koffi from "koffi";
import type { ModelParams, Pointer } from "./layouts.ts";

/** `LLAMA_MAX_DEVICES`: the library reads this many shares. */
const MAX_DEVICES = 16;
const POINTER_BYTES = 8;

/** Sets the devices of a model, and how it is divided over them; none is the CPU. */
export function setDevices(
  params: ModelParams,
  devices: readonly bigint[],
  split: GpuSplit | undefined,
): void {
  // A list that is empty but for its end means no device; a null list would mean all of them.
  const list = nativeBytes((devices.length + 1) * POINTER_BYTES);
  new BigUint64Array(list.view).set([...devices, 0n]);
  params.devices = list.address;
  if (devices.length < 2 || split === undefined) return;
  params.split_mode = SPLIT_MODES.indexOf(split.mode);
  params.main_gpu = split.mainGpu;
  if (split.shares.length === 0) return;
  const shares = nativeBytes(MAX_DEVICES * Float32Array.BYTES_PER_ELEMENT);
  new Float32Array(shares.view).fill(0).set(split.shares);
  params.tensor_split = shares.address;
}

/** Never freed: it belongs to the thread's one model. */
function nativeBytes(bytes: number): { address: Pointer; view: ArrayBuffer } {
  const memory: unknown = koffi.alloc("uint8_t", bytes);
  return { address: koffi.address(memory), view: koffi.view(memory, bytes) };
}
