import { AppError } from "@heddle/base/errors";

/** The API that all packages of TensorFlow.js share. */
export type TensorFlow = typeof import("@tensorflow/tfjs-core");

export interface LoadedTensorFlow {
  readonly tf: TensorFlow;
  /** The package that computes, with its version. */
  readonly runtime: string;
}

/** A variable, so that no build or start needs the package. */
const GPU_PACKAGE = "@tensorflow/tfjs-node-gpu";
const NATIVE_PACKAGE = "@tensorflow/tfjs-node";
const CORE_PACKAGE = "@tensorflow/tfjs-core";
const KERNELS_PACKAGE = "@tensorflow/tfjs-backend-cpu";

/** Loads a device's package. Rejects with an AppError `unavailable` with what to install. */
export async function loadTensorFlow(device: string): Promise<LoadedTensorFlow> {
  if (device !== "cpu") return loadGpu(device);
  const native = await optional(NATIVE_PACKAGE);
  if (native) return ready(native, NATIVE_PACKAGE);
  const [core, kernels] = [await optional(CORE_PACKAGE), await optional(KERNELS_PACKAGE)];
  if (core && kernels) {
    // Otherwise each process prints advice to install another package; our own graphs check shapes.
    core.env().set("PROD", true);
    await core.setBackend("cpu");
    return ready(core, `${KERNELS_PACKAGE}, JavaScript`);
  }
  throw new AppError(
    "unavailable",
    `the backend tfjs needs ${NATIVE_PACKAGE} (native), or ${CORE_PACKAGE} and ${KERNELS_PACKAGE} ` +
      "(JavaScript, slow), and none is installed: npm install one of them at 4.22.0 on this node, " +
      'or set "backend": "onnx"',
  );
}

async function loadGpu(device: string): Promise<LoadedTensorFlow> {
  const tf = await optional(GPU_PACKAGE);
  if (!tf) {
    throw new AppError(
      "unavailable",
      `the backend tfjs needs ${GPU_PACKAGE} for ${device}, and it is not installed: npm install ` +
        `${GPU_PACKAGE}@4.22.0 on this node (its install script downloads libtensorflow; it needs ` +
        'CUDA 11.2 and cuDNN 8.1), or set "backend": "onnx"',
    );
  }
  return ready(tf, GPU_PACKAGE);
}

async function ready(tf: TensorFlow, name: string): Promise<LoadedTensorFlow> {
  await tf.ready();
  return { tf, runtime: `${name} ${tf.version_core}` };
}

/** Undefined where the package is not installed; a broken installation is an error. */
async function optional(name: string): Promise<TensorFlow | undefined> {
  try {
    const module = (await import(name)) as TensorFlow & { readonly default?: TensorFlow };
    // The packages are CommonJS: their exports are under `default`.
    return module.default ?? module;
  } catch (cause) {
    const code = (cause as { readonly code?: unknown } | null)?.code;
    if (code === "ERR_MODULE_NOT_FOUND" && String(cause).includes(`'${name}'`)) return undefined;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new AppError("unavailable", `${name} is installed and does not load: ${why}`, { cause });
  }
}
