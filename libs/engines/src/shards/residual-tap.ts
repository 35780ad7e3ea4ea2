import { readdirSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import koffi from "koffi";
import type { ContextParams, Pointer } from "../llama/native/layouts.ts";
import type { NativeLibrary } from "../llama/native/native-library.ts";

/** Reads the rows that leave a shard's last block, which the block of zeros behind it is given. */
export interface ResidualTap {
  /** Before the context is made. */
  prepare(params: ContextParams): void;
  attach(context: Pointer): void;
  /** Before each decode. */
  begin(): void;
  /** After a decode of as many rows, until the next. Undefined where the library gave others. */
  rows(count: number): Float32Array | undefined;
  close(): void;
}

/** What a tap is for. */
export interface TapTarget {
  /** Blocks of the shard, with the one of zeros. */
  readonly blocks: number;
  readonly rowLength: number;
  /** Rows of the largest decode. */
  readonly capacity: number;
}

/** Functions of the library that give what leaves a block; opened once in a thread. */
export interface TapLibrary {
  /** Absent where the library does not copy the input of a block out. */
  readonly layerInput: LayerInput | undefined;
  copyOut(tensor: bigint, to: bigint, offset: number, bytes: number): void;
  nameOf(tensor: bigint): string;
  bytesOf(tensor: bigint): number | bigint;
  /** Calls back for each node of a computation. */
  register(onNode: (tensor: bigint, isQuestion: boolean) => boolean): TypedCallback;
}

interface LayerInput {
  set(context: Pointer, block: number, isOn: boolean): void;
  of(context: Pointer, block: number): Pointer;
  synchronize(context: Pointer): void;
}

type TypedCallback = ReturnType<typeof koffi.register>;

/** Throws an AppError `unavailable` where the library lacks a function. */
export function openTapLibrary(library: NativeLibrary): TapLibrary {
  const llama = koffi.load(library.llamaPath);
  const base = koffi.load(baseLibrary(library));
  // The arguments: a tensor, whether the library only asks, and data. A prototype with a name can be declared once.
  const prototype = koffi.pointer(koffi.proto("bool", ["void *", "bool", "void *"]));
  try {
    return {
      layerInput: openLayerInput(llama),
      copyOut: base.func(
        "void ggml_backend_tensor_get(void* tensor, void* data, size_t offset, size_t size)",
      ),
      nameOf: base.func("const char* ggml_get_name(void* tensor)"),
      bytesOf: base.func("size_t ggml_nbytes(void* tensor)"),
      register: (onNode) => koffi.register(onNode, prototype),
    };
  } catch (cause) {
    const message = `${library.packageName} cannot give what leaves a block of a model`;
    throw new AppError("unavailable", message, { cause });
  }
}

/** Opens a function of llama-ext.h, whose names are C++'s and may change. */
function openLayerInput(llama: ReturnType<typeof koffi.load>): LayerInput | undefined {
  try {
    return {
      set: llama.func(
        "void _Z30llama_set_embeddings_layer_inpP13llama_contextjb(void* ctx, uint32_t lid, bool value)",
      ),
      of: llama.func(
        "void* _Z30llama_get_embeddings_layer_inpP13llama_contextj(void* ctx, uint32_t lid)",
      ),
      synchronize: llama.func("void llama_synchronize(void* ctx)"),
    };
  } catch {
    return undefined;
  }
}

/**
 * The library copies the input of the block of zeros. Where the model's architecture has no such
 * input, the library ends the process.
 */
export function layerInputTap(
  { layerInput }: TapLibrary,
  { blocks, rowLength, capacity }: TapTarget,
): ResidualTap {
  if (!layerInput) throw new AppError("unavailable", "the library gives no input of a block");
  let context: Pointer = null;
  const copy = new Float32Array(capacity * rowLength);
  return {
    prepare: () => {},
    attach: (made) => {
      context = made;
      layerInput.set(context, blocks - 1, true);
    },
    begin: () => {},
    rows: (count) => {
      layerInput.synchronize(context);
      const memory = koffi.view(layerInput.of(context, blocks - 1), count * rowLength * 4);
      copy.set(new Float32Array(memory));
      return copy.subarray(0, count * rowLength);
    },
    close: () => {},
  };
}

/**
 * A callback takes the tensor that leaves the last block, and ends the computation there. It works
 * for every architecture that names that tensor `l_out`.
 */
export function callbackTap(
  library: TapLibrary,
  { blocks, rowLength, capacity }: TapTarget,
): ResidualTap {
  const memory: unknown = koffi.alloc("uint8_t", capacity * rowLength * 4);
  const address: bigint = koffi.address(memory);
  const copied = new Float32Array(koffi.view(memory, capacity * rowLength * 4));
  const wanted = `l_out-${blocks - 2}`;
  let got = 0;
  const callback = library.register((tensor, isQuestion) => {
    if (isQuestion) return library.nameOf(tensor) === wanted;
    const bytes = Number(library.bytesOf(tensor));
    library.copyOut(tensor, address + BigInt(got * rowLength * 4), 0, bytes);
    got += bytes / 4 / rowLength;
    return false;
  });
  return {
    prepare: (params) => {
      params.cb_eval = koffi.address(callback);
    },
    attach: () => {},
    begin: () => {
      got = 0;
    },
    rows: (count) => {
      if (got !== count) return undefined;
      return copied.subarray(0, count * rowLength);
    },
    close: () => {
      koffi.unregister(callback);
      koffi.free(memory);
    },
  };
}

function baseLibrary({ directory, packageName }: NativeLibrary): string {
  const file = readdirSync(directory).find((name) =>
    /^(lib)?ggml-base(\.v?[\d.]+)?\.(so|dylib|dll)$/.test(name),
  );
  if (file) return join(directory, file);
  throw new AppError("unavailable", `${packageName} in ${directory} has no ggml-base library`);
}
