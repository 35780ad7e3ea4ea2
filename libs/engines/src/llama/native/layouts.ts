/** A native address; null is the null pointer. */
export type Pointer = bigint | null;

/**
 * The members of `llama_model_params` in the order of llama.h at llama.cpp v0.5.0; a member that
 * moves is found by abi-guard.ts.
 */
export const MODEL_PARAMS = {
  devices: "void*",
  tensor_buft_overrides: "void*",
  n_gpu_layers: "int32_t",
  split_mode: "int",
  load_mode: "int",
  lazy_mode: "int",
  main_gpu: "int32_t",
  tensor_split: "void*",
  progress_callback: "void*",
  progress_callback_user_data: "void*",
  kv_overrides: "void*",
  vocab_only: "bool",
  check_tensors: "bool",
  use_extra_bufts: "bool",
  no_host: "bool",
  no_alloc: "bool",
  load_mtp: "bool",
} as const;

/** The members of `llama_context_params` in the order of llama.h at llama.cpp v0.5.0. */
export const CONTEXT_PARAMS = {
  n_ctx: "uint32_t",
  n_batch: "uint32_t",
  n_ubatch: "uint32_t",
  n_seq_max: "uint32_t",
  n_rs_seq: "uint32_t",
  n_outputs_max: "uint32_t",
  n_outputs_max_per_seq: "uint32_t",
  n_threads: "int32_t",
  n_threads_batch: "int32_t",
  ctx_type: "int",
  rope_scaling_type: "int",
  pooling_type: "int",
  attention_type: "int",
  flash_attn_type: "int",
  rope_freq_base: "float",
  rope_freq_scale: "float",
  yarn_ext_factor: "float",
  yarn_attn_factor: "float",
  yarn_beta_fast: "float",
  yarn_beta_slow: "float",
  yarn_orig_ctx: "uint32_t",
  defrag_thold: "float",
  cb_eval: "void*",
  cb_eval_user_data: "void*",
  type_k: "int",
  type_v: "int",
  abort_callback: "void*",
  abort_callback_data: "void*",
  embeddings: "bool",
  offload_kqv: "bool",
  no_perf: "bool",
  op_offload: "bool",
  swa_full: "bool",
  kv_unified: "bool",
  samplers: "void*",
  n_samplers: "size_t",
  ctx_other: "void*",
} as const;

type Member<Type> = Type extends "void*" ? Pointer : Type extends "bool" ? boolean : number;

/** A `llama_model_params` value. */
export type ModelParams = {
  -readonly [Key in keyof typeof MODEL_PARAMS]: Member<(typeof MODEL_PARAMS)[Key]>;
};

/** A `llama_context_params` value. */
export type ContextParams = {
  -readonly [Key in keyof typeof CONTEXT_PARAMS]: Member<(typeof CONTEXT_PARAMS)[Key]>;
};

/** What `llama_model_default_params()` returns at v0.5.0. */
export const MODEL_DEFAULTS: ModelParams = {
  devices: null,
  tensor_buft_overrides: null,
  n_gpu_layers: -1,
  split_mode: 1,
  load_mode: -1,
  lazy_mode: 1,
  main_gpu: 0,
  tensor_split: null,
  progress_callback: null,
  progress_callback_user_data: null,
  kv_overrides: null,
  vocab_only: false,
  check_tensors: false,
  use_extra_bufts: true,
  no_host: false,
  no_alloc: false,
  load_mtp: false,
};

/** What `llama_context_default_params()` returns at v0.5.0. */
export const CONTEXT_DEFAULTS: ContextParams = {
  n_ctx: 512,
  n_batch: 2048,
  n_ubatch: 512,
  n_seq_max: 1,
  n_rs_seq: 0,
  n_outputs_max: 0,
  n_outputs_max_per_seq: 1,
  n_threads: 4,
  n_threads_batch: 4,
  ctx_type: 0,
  rope_scaling_type: -1,
  pooling_type: -1,
  attention_type: -1,
  flash_attn_type: -1,
  rope_freq_base: 0,
  rope_freq_scale: 0,
  yarn_ext_factor: -1,
  yarn_attn_factor: -1,
  yarn_beta_fast: -1,
  yarn_beta_slow: -1,
  yarn_orig_ctx: 0,
  defrag_thold: -1,
  cb_eval: null,
  cb_eval_user_data: null,
  type_k: 1,
  type_v: 1,
  abort_callback: null,
  abort_callback_data: null,
  embeddings: false,
  offload_kqv: true,
  no_perf: true,
  op_offload: true,
  swa_full: true,
  kv_unified: false,
  samplers: null,
  n_samplers: 0,
  ctx_other: null,
};
