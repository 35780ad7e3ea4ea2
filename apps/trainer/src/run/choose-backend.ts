import { onnxBackend } from "@heddle/backends/onnx-backend";
import { tfjsBackend } from "@heddle/backends/tfjs-backend";
import { AppError, toAppError } from "@heddle/base/errors";
import type { TrainingConfig } from "@heddle/contracts/training";
import type { Log } from "@heddle/observability/logger";
import type { Backend } from "@heddle/training/backend";
import { Graph } from "@heddle/training/ir/graph";
import { referenceBackend } from "@heddle/training/reference/reference-backend";

/** The devices of a task. */
export interface TaskDevices {
  /** Whether it holds a GPU that is not simulated; CUDA sees it as its first. */
  readonly hasGpu: boolean;
  /** Threads of one operator on the CPU. */
  readonly threads: number;
}

/**
 * The requested backend on the requested device. `auto` uses CUDA where the task holds a GPU and
 * the provider loads, else the CPU, and logs why.
 * - Rejects with an AppError `unavailable` where the request cannot be met.
 * - Rejects with `invalid_value`, which no retry changes, for `cuda` in a task without a GPU.
 */
export async function chooseBackend(
  { backend, device }: Pick<TrainingConfig, "backend" | "device">,
  { hasGpu, threads }: TaskDevices,
  log: Pick<Log, "warn">,
): Promise<Backend> {
  if (backend === "reference") return referenceBackend;
  const isTfjs = backend === "tfjs";
  const cpu = async () =>
    isTfjs ? tfjsBackend({ device: "cpu" }) : onnxBackend({ device: "cpu", threads });
  if (device === "cuda" && !hasGpu) throw noGpu();
  if (device === "cpu" || !hasGpu) return cpu();
  try {
    return await (isTfjs ? tfjsBackend({ device: "cuda:0" }) : openDevice("cuda:0", threads));
  } catch (error) {
    if (device === "cuda") throw error;
    log.warn(
      {},
      `computing on the CPU, since the GPU cannot be used: ${toAppError(error).message}`,
    );
    return cpu();
  }
}

function noGpu(): AppError {
  const message = "`device: cuda` needs a GPU, and the task holds none that is real";
  return new AppError("invalid_value", `${message}: ask for one with \`resources.gpu_count\``, {
    param: "config.device",
  });
}

/**
 * Compiles a first program on a device, which proves that its provider loads. Rejects with an
 * AppError `unavailable`.
 */
export async function openDevice(device: "cpu" | "cuda:0", threads: number): Promise<Backend> {
  const backend = onnxBackend({ device, threads });
  const graph = new Graph();
  const value = graph.add(graph.input("probe", [1]), 1);
  const inputs = [{ name: "probe", shape: [1], type: "f32" }] as const;
  const compiled = await backend.compile({ inputs, outputs: [{ name: "result", value }] });
  await compiled.close();
  return backend;
}
