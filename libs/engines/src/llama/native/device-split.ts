import { AppError } from "@heddle/base/errors";
import { deviceLabel } from "@heddle/contracts/gpu-devices";
import { type GpuSplit, SPLIT_MODES } from "@heddle/contracts/models/model-division";
import koffi from "koffi";
import type { Bindings } from "./bindings.ts";
import type { ModelParams, Pointer } from "./layouts.ts";

/** `LLAMA_MAX_DEVICES`: the library reads this many shares. */
const MAX_DEVICES = 16;
const POINTER_BYTES = 8;
/** In ggml_backend_dev_type: discrete and integrated GPUs. */
const GPU_TYPES = [1, 2];

/** The GPUs of a list of indexes, in its order; none for `cpu`. */
export function pickDevices(
  { ggml }: Pick<Bindings, "ggml">,
  device: string,
): { pointers: bigint[]; name: string } {
  if (device === "cpu") return { pointers: [], name: "cpu" };
  const gpus: Pointer[] = [];
  const count = Number(ggml.dev_count());
  for (let i = 0; i < count; i++) {
    const pointer = ggml.dev_get(i);
    if (GPU_TYPES.includes(ggml.dev_type(pointer))) gpus.push(pointer);
  }
  const indexes = device.split(",");
  const pointers = indexes.flatMap((index) => gpus[Number(index)] ?? []);
  const [first] = pointers;
  if (first === undefined || pointers.length < indexes.length) {
    throw new AppError(
      "unavailable",
      `device ${device} is not one of this node's ${gpus.length} GPUs; ` +
        'say "cpu" or an index below that number',
    );
  }
  return { pointers, name: deviceLabel(indexes, ggml.dev_description(first)) };
}

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
