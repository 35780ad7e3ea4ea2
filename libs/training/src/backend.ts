import type { Executable } from "./executable.ts";

/** Tensors by name, row by row; indices as Int32Array. */
export type Tensors = Readonly<Record<string, Float32Array | Int32Array>>;

/** Runs training programs on one device; each implementation passes the conformance kit. */
export interface Backend {
  /** `onnx`, `reference` or `tfjs`. */
  readonly name: string;
  /** The device actually used, as `cpu` or `cuda:0 NVIDIA H100`; shown in the job's status. */
  readonly device: string;
  /** Rejects with an AppError `unavailable` where the device cannot run it. */
  compile(executable: Executable): Promise<CompiledProgram>;
}

export interface CompiledProgram {
  /**
   * One run; calls do not overlap. The caller owns the result. Rejects with an AppError
   * `invalid_value` for a missing or misshapen tensor.
   */
  run(feeds: Tensors): Promise<Record<string, Float32Array>>;
  close(): Promise<void>;
}
