import { toAppError } from "@heddle/base/errors";
import type { FailureReason } from "@heddle/contracts/api/job-spec";
import { FAILURE_PREFIX } from "@heddle/contracts/trainer/exit-codes";
import { LaunchError, type TaskEnd } from "./executor.ts";
import { signalFromExitStatus } from "./signal-from-exit-status.ts";

/** Why the worker itself ended a task; it has precedence over the exit status. */
export interface ExitVerdict {
  readonly reason: FailureReason;
  readonly message: string;
  /** The indexes of faulty devices. */
  readonly sickDevices?: readonly number[] | undefined;
}

/** Why a task could not be started. */
export function startVerdict(error: unknown, isDiskFault = false): ExitVerdict {
  const own = isDiskFault ? "NodeLost" : "Internal";
  const reason = error instanceof LaunchError ? error.reason : own;
  return { reason, message: toAppError(error).message };
}

/** The reason and message of a task's end; no reason for success. */
export function exitReason(
  end: TaskEnd,
  lastLines: readonly string[],
  verdict: ExitVerdict | undefined,
): { readonly reason: FailureReason | ""; readonly message: string } {
  if (verdict) return verdict;
  if (end.outOfMemory) {
    return { reason: "OutOfMemory", message: `the system ended it: ${OUT_OF_MEMORY_ADVICE}` };
  }
  if (end.lostBy) return { reason: "NodeLost", message: end.lostBy };
  if (end.exitCode === 0) return { reason: "", message: "" };
  // The two streams are read separately: an earlier line may come later.
  const said = lastLines.findLast((line) => line.startsWith(FAILURE_PREFIX)) ?? lastLines.at(-1);
  if (end.lostNode) return { reason: "NodeLost", message: said ?? exitText(end) };
  if (end.isUnusable) return { reason: "Unsatisfiable", message: said ?? exitText(end) };
  if (end.isCheckpointCorrupt) {
    return { reason: "CheckpointCorrupt", message: said ?? exitText(end) };
  }
  const text = lastLines.join("\n");
  if (GPU_MEMORY.test(text)) {
    const message =
      "its last lines say that the GPU's memory ran out: use smaller batches, more GPUs, or a larger `gpu_memory_gb`";
    return { reason: "GpuOutOfMemory", message };
  }
  if (HOST_MEMORY.test(text)) {
    return { reason: "OutOfMemory", message: `its last lines say so: ${OUT_OF_MEMORY_ADVICE}` };
  }
  const message = end.hasReason ? said : undefined;
  return { reason: "ExitCode", message: message ?? exitText(end) };
}

/** Advice for a task that ran out of memory. */
export const OUT_OF_MEMORY_ADVICE = "memory ran out; ask for more with `resources.memory_gb`";

/** Messages of CUDA, PyTorch, JAX and ROCm. */
const GPU_MEMORY =
  /CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|OutOfMemoryError: .*GPU|RESOURCE_EXHAUSTED: Out of memory/;
/** Messages of Python, C++, Node, ONNX Runtime, Go, Java and the C library. */
const HOST_MEMORY =
  /^MemoryError|std::bad_alloc|JavaScript heap out of memory|Array buffer allocation failed|Failed to allocate memory for requested buffer|fatal error: runtime: out of memory|java\.lang\.OutOfMemoryError|Cannot allocate memory/m;

function exitText({ exitCode, signal }: TaskEnd): string {
  if (signal) return `the program was ended by ${signal}`;
  if (exitCode === undefined) return "the program ended while its worker was not running";
  const killedBy = signalFromExitStatus(exitCode);
  const hint = killedBy ? `, as a shell does whose last command was ended by ${killedBy}` : "";
  return `the program ended with exit code ${exitCode}${hint}`;
}
