/**
 * Variables that a job may set for Heddle's own trainer. Others are refused: loaders, runtimes and
 * libraries run code that variables name (NODE_OPTIONS, LD_PRELOAD, OPENSSL_CONF,
 * CUDA_INJECTION64_PATH), and a deny list is never complete.
 */
const ALLOWED: readonly RegExp[] = [
  // Settings of plugins.
  /^PLUGIN_[A-Z0-9_]+$/,
  /^(LANG|LC_[A-Z]+|TZ)$/,
  /^OMP_(NUM_THREADS|DYNAMIC|PROC_BIND|PLACES|WAIT_POLICY|SCHEDULE)$/,
  /^(CUDA_LAUNCH_BLOCKING|CUBLAS_WORKSPACE_CONFIG|NVIDIA_TF32_OVERRIDE)$/,
  /^TF_(CPP_MIN_LOG_LEVEL|DETERMINISTIC_OPS|FORCE_GPU_ALLOW_GROWTH|ENABLE_ONEDNN_OPTS|NUM_(INTRA|INTER)OP_THREADS)$/,
];

export const TRAINER_VARIABLES =
  "PLUGIN_*, LANG, LC_*, TZ, and the settings of OMP_*, TF_*, CUDA and cuBLAS that docs/guide/training.md lists";

/** Whether a job may set the variable for a task of Heddle's own trainer. */
export function isTrainerVariable(name: string): boolean {
  return ALLOWED.some((form) => form.test(name));
}
