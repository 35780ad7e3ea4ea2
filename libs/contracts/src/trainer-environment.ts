/**
 * Variables that a job may set for Heddle's own trainer; `*` is capitals, digits and `_`. Others are
 * refused: loaders, runtimes and libraries run code that variables name (NODE_OPTIONS, LD_PRELOAD,
 * OPENSSL_CONF, CUDA_INJECTION64_PATH), and a deny list is never complete.
 */
export const TRAINER_VARIABLE_NAMES: readonly string[] = [
  "PLUGIN_*",
  "TRACEPARENT",
  "LANG",
  "LC_*",
  "TZ",
  "OMP_NUM_THREADS",
  "OMP_DYNAMIC",
  "OMP_PROC_BIND",
  "OMP_PLACES",
  "OMP_WAIT_POLICY",
  "OMP_SCHEDULE",
  "CUDA_LAUNCH_BLOCKING",
  "CUBLAS_WORKSPACE_CONFIG",
  "NVIDIA_TF32_OVERRIDE",
  "TF_CPP_MIN_LOG_LEVEL",
  "TF_DETERMINISTIC_OPS",
  "TF_FORCE_GPU_ALLOW_GROWTH",
  "TF_ENABLE_ONEDNN_OPTS",
  "TF_NUM_INTRAOP_THREADS",
  "TF_NUM_INTEROP_THREADS",
];

const ALLOWED = new RegExp(
  `^(${TRAINER_VARIABLE_NAMES.map((name) => name.replace("*", "[A-Z0-9_]+")).join("|")})$`,
);

export const TRAINER_VARIABLES =
  "PLUGIN_*, TRACEPARENT, LANG, LC_*, TZ, and the settings of OMP_*, TF_*, CUDA and cuBLAS that docs/reference/training.md lists";

/** Whether a job may set the variable for a task of Heddle's own trainer. */
export function isTrainerVariable(name: string): boolean {
  return ALLOWED.test(name);
}
