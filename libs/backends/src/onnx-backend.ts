import { AppError } from "@heddle/base/errors";
import type { Backend, CompiledProgram, Tensors } from "@heddle/training/backend";
import { type Executable, fedInputs, givenOutputs } from "@heddle/training/executable";
import { emitModel } from "@heddle/training/onnx/emit-model";
import type { Tensor as OnnxTensor, InferenceSession as Session } from "onnxruntime-node";
import { checkedFeed } from "./checked-feed.ts";

// The runtime reads this once, when it is loaded. Without it the runtime sends telemetry and leaves
// a log of that in the temporary directory.
process.env["ORT_DISABLE_TELEMETRY"] = "1";
const { InferenceSession, Tensor } = await import("onnxruntime-node").catch(notInstalled);

export interface OnnxOptions {
  /**
   * `cpu`, or `cuda` and the device's index. There is no fallback: an unavailable device is an
   * error.
   */
  readonly device: "cpu" | `cuda:${number}`;
  /** Threads of one operator; more than the free cores make it slower. */
  readonly threads: number;
}

/**
 * ONNX Runtime. A run blocks its thread, so this belongs in a process or worker thread of its own.
 */
export function onnxBackend(options: OnnxOptions): Backend {
  return {
    name: "onnx",
    device: options.device,
    compile: (executable) => compile(executable, options),
  };
}

/** npm omits the package where its install script fails, as it does without access to nuget.org. */
function notInstalled(cause: unknown): never {
  const message =
    "ONNX Runtime cannot be loaded. Install Heddle again with ONNXRUNTIME_NODE_INSTALL=skip in the environment of npm install.";
  throw new AppError("unavailable", message, { cause });
}

async function compile(executable: Executable, options: OnnxOptions): Promise<CompiledProgram> {
  const session = await openSession(emitModel(executable), options);
  const inputs = fedInputs(executable);
  const outputs = givenOutputs(executable).map(({ name }) => name);
  return {
    run: async (feeds: Tensors) => {
      const tensors: Record<string, OnnxTensor> = {};
      for (const { name, shape, type } of inputs) {
        const data = checkedFeed(name, shape, type, feeds[name]);
        // The members of the union differ in the type of their data.
        tensors[name] =
          data instanceof Int32Array
            ? new Tensor("int32", data, shape)
            : new Tensor("float32", data, shape);
      }
      const results = await session.run(tensors);
      return Object.fromEntries(outputs.map((name) => [name, results[name]?.data as Float32Array]));
    },
    close: () => session.release(),
  };
}

async function openSession(model: Uint8Array, options: OnnxOptions): Promise<Session> {
  const [kind, index] = options.device.split(":");
  try {
    return await InferenceSession.create(model, {
      executionProviders: [
        kind === "cuda" ? { name: "cuda", deviceId: Number(index ?? 0) } : { name: "cpu" },
      ],
      intraOpNumThreads: options.threads,
      interOpNumThreads: 1,
      executionMode: "sequential",
      logSeverityLevel: 3,
    });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new AppError("unavailable", `ONNX Runtime cannot run this on ${options.device}: ${why}`, {
      cause,
    });
  }
}
