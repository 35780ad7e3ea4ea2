import koffi, { type LibraryHandle } from "koffi";
import { checkAbi } from "./abi-guard.ts";
import {
  CONTEXT_PARAMS,
  type ContextParams,
  MODEL_PARAMS,
  type ModelParams,
  type Pointer,
} from "./layouts.ts";
import type { NativeLibrary } from "./native-library.ts";

/** The value that is passed for a `llama_batch`; see batch.ts for its arrays. */
export interface BatchStruct {
  n_tokens: number;
  token: Pointer;
  embd: Pointer;
  pos: Pointer;
  n_seq_id: Pointer;
  seq_id: Pointer;
  logits: Pointer;
}

/** The functions of llama.h that the engine calls, under their C names without `llama_`. */
export interface Llama {
  version(): string;
  model_default_params(): ModelParams;
  context_default_params(): ContextParams;
  backend_init(): void;
  log_set(callback: Pointer, userData: Pointer): void;
  model_load_from_file(path: string, params: ModelParams): Pointer;
  model_free(model: Pointer): void;
  init_from_model(model: Pointer, params: ContextParams): Pointer;
  free(context: Pointer): void;
  adapter_lora_init(model: Pointer, path: string): Pointer;
  adapter_lora_free(adapter: Pointer): void;
  set_adapters_lora(
    context: Pointer,
    adapters: BigUint64Array,
    count: number,
    scales: Float32Array,
  ): number;
  get_memory(context: Pointer): Pointer;
  memory_seq_rm(memory: Pointer, sequence: number, from: number, to: number): boolean;
  memory_seq_cp(memory: Pointer, from: number, to: number, start: number, end: number): void;
  state_seq_get_size(context: Pointer, sequence: number): number | bigint;
  state_seq_get_data(
    context: Pointer,
    data: Uint8Array,
    size: number,
    sequence: number,
  ): number | bigint;
  state_seq_set_data(
    context: Pointer,
    data: Uint8Array,
    size: number,
    sequence: number,
  ): number | bigint;
  decode(context: Pointer, batch: BatchStruct): number;
  get_logits(context: Pointer): Pointer;
  set_embeddings(context: Pointer, on: boolean): void;
  get_embeddings(context: Pointer): Pointer;
  get_embeddings_seq(context: Pointer, sequence: number): Pointer;
  pooling_type(context: Pointer): number;
  model_get_vocab(model: Pointer): Pointer;
  model_n_ctx_train(model: Pointer): number;
  model_n_embd(model: Pointer): number;
  model_n_embd_out(model: Pointer): number;
  model_n_cls_out(model: Pointer): number;
  model_n_layer(model: Pointer): number;
  /** The width of the attention's window; 0 for none. */
  model_n_swa(model: Pointer): number;
  model_n_head(model: Pointer): number;
  model_n_head_kv(model: Pointer): number;
  model_n_params(model: Pointer): number | bigint;
  model_size(model: Pointer): number | bigint;
  model_desc(model: Pointer, buffer: Uint8Array, size: number): number;
  model_meta_val_str(model: Pointer, key: string, buffer: Uint8Array, size: number): number;
  model_chat_template(model: Pointer, name: string | null): string | null;
  model_is_recurrent(model: Pointer): boolean;
  model_is_hybrid(model: Pointer): boolean;
  model_has_encoder(model: Pointer): boolean;
  vocab_type(vocabulary: Pointer): number;
  vocab_n_tokens(vocabulary: Pointer): number;
  vocab_is_eog(vocabulary: Pointer, token: number): boolean;
  vocab_is_control(vocabulary: Pointer, token: number): boolean;
  vocab_get_attr(vocabulary: Pointer, token: number): number;
  vocab_bos(vocabulary: Pointer): number;
  vocab_eos(vocabulary: Pointer): number;
  vocab_sep(vocabulary: Pointer): number;
  vocab_fim_pre(vocabulary: Pointer): number;
  vocab_fim_suf(vocabulary: Pointer): number;
  vocab_fim_mid(vocabulary: Pointer): number;
  vocab_get_add_bos(vocabulary: Pointer): boolean;
  vocab_get_add_eos(vocabulary: Pointer): boolean;
  vocab_get_add_sep(vocabulary: Pointer): boolean;
  token_to_piece(
    vocabulary: Pointer,
    token: number,
    buffer: Uint8Array,
    size: number,
    leftStrip: number,
    special: boolean,
  ): number;
  tokenize(
    vocabulary: Pointer,
    text: Uint8Array,
    bytes: number,
    tokens: Int32Array | null,
    capacity: number,
    addSpecial: boolean,
    parseSpecial: boolean,
  ): number;
}

/** The functions of ggml-backend.h that the engine calls, without `ggml_backend_`. */
interface Ggml {
  load_all_from_path(directory: string): void;
  dev_count(): number | bigint;
  dev_get(index: number): Pointer;
  dev_type(device: Pointer): number;
  dev_description(device: Pointer): string;
}

/** An opened build of llama.cpp. */
export interface Bindings {
  readonly llama: Llama;
  readonly ggml: Ggml;
  /** The address of a native function that ignores its arguments: the log goes nowhere. */
  readonly silentLog: Pointer;
}

const LLAMA_SIGNATURES = [
  "const char* llama_version()",
  "llama_model_params llama_model_default_params()",
  "llama_context_params llama_context_default_params()",
  "void llama_backend_init()",
  "void llama_log_set(void* cb, void* ud)",
  "void* llama_model_load_from_file(const char* path, llama_model_params params)",
  "void llama_model_free(void* model)",
  "void* llama_init_from_model(void* model, llama_context_params params)",
  "void llama_free(void* ctx)",
  "void* llama_adapter_lora_init(void* model, const char* path)",
  "void llama_adapter_lora_free(void* adapter)",
  "int32_t llama_set_adapters_lora(void* ctx, void* adapters, size_t n, void* scales)",
  "void* llama_get_memory(void* ctx)",
  "bool llama_memory_seq_rm(void* mem, int32_t seq, int32_t p0, int32_t p1)",
  "void llama_memory_seq_cp(void* mem, int32_t a, int32_t b, int32_t p0, int32_t p1)",
  "size_t llama_state_seq_get_size(void* ctx, int32_t seq)",
  "size_t llama_state_seq_get_data(void* ctx, void* data, size_t size, int32_t seq)",
  "size_t llama_state_seq_set_data(void* ctx, void* data, size_t size, int32_t seq)",
  "int32_t llama_decode(void* ctx, llama_batch batch)",
  "void* llama_get_logits(void* ctx)",
  "void llama_set_embeddings(void* ctx, bool on)",
  "void* llama_get_embeddings(void* ctx)",
  "void* llama_get_embeddings_seq(void* ctx, int32_t seq)",
  "int llama_pooling_type(void* ctx)",
  "void* llama_model_get_vocab(void* model)",
  "int32_t llama_model_n_ctx_train(void* model)",
  "int32_t llama_model_n_embd(void* model)",
  "int32_t llama_model_n_embd_out(void* model)",
  "uint32_t llama_model_n_cls_out(void* model)",
  "int32_t llama_model_n_layer(void* model)",
  "int32_t llama_model_n_swa(void* model)",
  "int32_t llama_model_n_head(void* model)",
  "int32_t llama_model_n_head_kv(void* model)",
  "uint64_t llama_model_n_params(void* model)",
  "uint64_t llama_model_size(void* model)",
  "int32_t llama_model_desc(void* model, void* buf, size_t size)",
  "int32_t llama_model_meta_val_str(void* model, const char* key, void* buf, size_t size)",
  "const char* llama_model_chat_template(void* model, const char* name)",
  "bool llama_model_is_recurrent(void* model)",
  "bool llama_model_is_hybrid(void* model)",
  "bool llama_model_has_encoder(void* model)",
  "int llama_vocab_type(void* vocab)",
  "int32_t llama_vocab_n_tokens(void* vocab)",
  "bool llama_vocab_is_eog(void* vocab, int32_t token)",
  "bool llama_vocab_is_control(void* vocab, int32_t token)",
  "int32_t llama_vocab_get_attr(void* vocab, int32_t token)",
  "int32_t llama_vocab_bos(void* vocab)",
  "int32_t llama_vocab_eos(void* vocab)",
  "int32_t llama_vocab_sep(void* vocab)",
  "int32_t llama_vocab_fim_pre(void* vocab)",
  "int32_t llama_vocab_fim_suf(void* vocab)",
  "int32_t llama_vocab_fim_mid(void* vocab)",
  "bool llama_vocab_get_add_bos(void* vocab)",
  "bool llama_vocab_get_add_eos(void* vocab)",
  "bool llama_vocab_get_add_sep(void* vocab)",
  "int32_t llama_token_to_piece(void* vocab, int32_t t, void* buf, int32_t n, int32_t strip, bool special)",
  "int32_t llama_tokenize(void* vocab, const void* text, int32_t len, void* out, int32_t n, bool add, bool parse)",
];

const GGML_SIGNATURES = [
  "void ggml_backend_load_all_from_path(const char* dir)",
  "size_t ggml_backend_dev_count()",
  "void* ggml_backend_dev_get(size_t index)",
  "int ggml_backend_dev_type(void* dev)",
  "const char* ggml_backend_dev_description(void* dev)",
];

/**
 * Opens the libraries in this thread, registers the compute backends and checks that the layouts
 * match. Throws `unavailable` where the libraries are of another version than the layouts.
 */
export function openBindings(library: NativeLibrary): Bindings {
  registerLayouts();
  const ggmlLibrary = koffi.load(library.ggmlPath);
  const llamaLibrary = koffi.load(library.llamaPath);
  const llama = bind(llamaLibrary, LLAMA_SIGNATURES, "llama_") as unknown as Llama;
  const ggml = bind(ggmlLibrary, GGML_SIGNATURES, "ggml_backend_") as unknown as Ggml;
  checkAbi(llama, library);
  // llama_time_us takes no argument and has no effect, so it is safe to call with any.
  const silentLog = llamaLibrary.symbol("llama_time_us", "void*") as Pointer;
  return { llama, ggml, silentLog };
}

/** The names are the process's: a module that is loaded twice finds its own. */
function areRegistered(): boolean {
  try {
    koffi.sizeof("llama_model_params");
    return true;
  } catch {
    return false;
  }
}

function registerLayouts(): void {
  if (areRegistered()) return;
  koffi.struct("llama_model_params", MODEL_PARAMS);
  koffi.struct("llama_context_params", CONTEXT_PARAMS);
  koffi.struct("llama_batch", {
    n_tokens: "int32_t",
    token: "void*",
    embd: "void*",
    pos: "void*",
    n_seq_id: "void*",
    seq_id: "void*",
    logits: "void*",
  });
}

function bind(
  library: LibraryHandle,
  signatures: readonly string[],
  prefix: string,
): Record<string, unknown> {
  const functions: Record<string, unknown> = {};
  for (const signature of signatures) {
    const name = /(\w+)\(/.exec(signature)?.[1] as string;
    functions[name.slice(prefix.length)] = library.func(signature);
  }
  return functions;
}
