import { AppError } from "@heddle/base/errors";
import type { GpuSplit } from "@heddle/contracts/models/model-division";
import koffi from "koffi";
import { Batch, DECODED, NO_KV_SLOT, rowMemory } from "../llama/engine-thread/batch.ts";
import type { KvSequences } from "../llama/kv-cache/prefix-tree.ts";
import { type Llama, openBindings } from "../llama/native/bindings.ts";
import { pickDevices, setDevices } from "../llama/native/device-split.ts";
import { setLoadMode } from "../llama/native/huge-pages.ts";
import type { Pointer } from "../llama/native/layouts.ts";
import { findNativeLibrary } from "../llama/native/native-library.ts";
import { CacheMover } from "./cache-mover.ts";
import { CellTable } from "./cell-table.ts";
import type { CutRule } from "./cut-rules.ts";
import { openTapLibrary, type ResidualTap } from "./residual-tap.ts";
import { GivenAdapters } from "./ring/adapter-frames.ts";
import { ROW_NUMBERS } from "./ring/stage-frame.ts";
import type { BlockRange } from "./shard-cut.ts";
import {
  type ContextSizes,
  chooseTap,
  openStageContext,
  type StageLibrary,
} from "./stage-context.ts";

const ALL_LAYERS = -1;

/** One row of a decode. */
export interface StageRow {
  /** Ignored where the stage is given rows of the residual stream. */
  readonly token: number;
  readonly position: number;
  readonly sequence: number;
  /** Whether the last stage gives its logits. */
  readonly output: boolean;
}

/** How to open a stage. */
export interface StageOptions extends ContextSizes, BlockRange {
  /** A shard's file, or a whole model's. */
  readonly path: string;
  readonly rule: CutRule;
  /** Whether it gives logits; else rows of the residual stream. */
  readonly isLast: boolean;
  /** The number of the stage's blocks on GPUs, where it has some; all if absent. */
  readonly gpuLayers?: number | undefined;
  /** Over several GPUs. */
  readonly split?: GpuSplit | undefined;
}

/** Opens the library for a device, once in a thread. Throws an AppError `unavailable`. */
export function openStageLibrary(device = "cpu"): StageLibrary {
  const library = findNativeLibrary(device);
  const bindings = openBindings(library);
  const { llama, ggml, silentLog } = bindings;
  llama.log_set(silentLog, null);
  ggml.load_all_from_path(library.directory);
  llama.backend_init();
  return { llama, taps: openTapLibrary(library), devices: pickDevices(bindings, device) };
}

/**
 * A shard of a model in memory. Every stage of a model decodes the same rows in the same order, so
 * that their caches hold the same tokens. It belongs to the thread that opened it.
 */
export class StageModel implements KvSequences {
  /** Values of a row of the residual stream. */
  readonly rowLength: number;
  readonly vocabularySize: number;
  readonly adapters: GivenAdapters;
  readonly mover: CacheMover;
  readonly #llama: Llama;
  readonly #model: Pointer;
  readonly #context: Pointer;
  readonly #memory: Pointer;
  readonly #tap: ResidualTap | undefined;
  readonly #batch: Batch;
  readonly #cells = new CellTable();

  private constructor(options: StageOptions, { llama, model, tap, context }: Opened) {
    this.#llama = llama;
    this.#model = model;
    this.#context = context;
    this.#memory = llama.get_memory(context);
    this.#tap = tap;
    this.rowLength = llama.model_n_embd(model);
    this.vocabularySize = llama.vocab_n_tokens(llama.model_get_vocab(model));
    const rows = rowMemory(options.batchTokens, this.rowLength);
    this.adapters = new GivenAdapters({ llama, model, context }, options);
    const cache = { llama, context, memory: this.#memory, window: llama.model_n_swa(model) };
    this.mover = new CacheMover(cache, this.#cells, options.maxSequences);
    this.#batch = new Batch(options.batchTokens, options.maxSequences, rows);
  }

  /** Throws an AppError `engine_failed` where the library refuses the file or the sizes. */
  static open(library: StageLibrary, options: StageOptions): StageModel {
    const { llama, taps, devices } = library;
    const params = llama.model_default_params();
    setDevices(params, devices.pointers, options.split);
    params.n_gpu_layers = devices.pointers.length === 0 ? 0 : (options.gpuLayers ?? ALL_LAYERS);
    if (devices.pointers.length === 0) setLoadMode(params, options.path);
    const model = llama.model_load_from_file(options.path, params);
    if (model === null) throw new AppError("engine_failed", "the shard could not be loaded");
    const blocks = llama.model_n_layer(model);
    const rowLength = llama.model_n_embd(model);
    const target = { blocks, rowLength, capacity: options.batchTokens };
    const tap = options.isLast ? undefined : chooseTap(library, model, options.rule)(taps, target);
    const context = openStageContext(llama, model, options, tap);
    if (context === null) {
      tap?.close();
      llama.model_free(model);
      const message = `the shard got no context of ${options.kvTokens} KV tokens; lower kvTokens`;
      throw new AppError("engine_failed", message);
    }
    return new StageModel(options, { llama, model, tap, context });
  }

  /** Decodes tokens; or where `hidden` is given, these rows of the stage before. */
  decode(rows: readonly StageRow[], hidden?: Float32Array): void {
    this.#batch.clear();
    const givesLogits = this.#tap === undefined;
    for (const { token, position, sequence, output } of rows) {
      this.#batch.add(token, position, sequence, output && givesLogits);
    }
    if (!this.#decode(hidden)) throw new AppError("engine_failed", "the shard's cache is full");
    for (const { sequence, position } of rows) this.#cells.add(sequence, position);
  }

  /** The same for rows of a frame, of which none gives logits; false where no cells are free. */
  decodeRows(rows: Int32Array, hidden: Float32Array): boolean {
    this.#batch.clear();
    for (let at = 0; at < rows.length; at += ROW_NUMBERS) {
      const [token = 0, position = 0, sequence = 0] = rows.subarray(at, at + ROW_NUMBERS);
      this.#batch.add(token, position, sequence, false);
    }
    if (!this.#decode(hidden.length > 0 ? hidden : undefined)) return false;
    for (let at = 0; at < rows.length; at += ROW_NUMBERS) {
      const [position = 0, sequence = 0] = rows.subarray(at + 1, at + ROW_NUMBERS);
      this.#cells.add(sequence, position);
    }
    return true;
  }

  #decode(hidden: Float32Array | undefined): boolean {
    if (hidden) this.#batch.setRows(hidden);
    this.#tap?.begin();
    const code = this.#llama.decode(this.#context, this.#batch.struct);
    if (code === DECODED || code === NO_KV_SLOT) return code === DECODED;
    throw new AppError("engine_failed", `the shard's decode ended with ${code}`);
  }

  /** The rows that left the last block in the last decode, until the next; not of the last stage. */
  hidden(rows: number): Float32Array {
    if (!this.#tap) throw new Error("the last stage has no rows for another");
    const found = this.#tap.rows(rows);
    if (found) return found;
    throw new AppError("engine_failed", `the library did not give the ${rows} rows of a decode`);
  }

  /** The logits of the last decode's outputs, one row after the other. */
  logits(outputs: number): Float32Array {
    const pointer = this.#llama.get_logits(this.#context);
    return new Float32Array(koffi.view(pointer, outputs * this.vocabularySize * 4)).slice();
  }

  remove(sequence: number, begin: number, end: number): void {
    this.#llama.memory_seq_rm(this.#memory, sequence, begin, end);
    this.#cells.remove(sequence, begin, end);
  }

  copy(from: number, to: number, begin: number, end: number): void {
    this.#llama.memory_seq_cp(this.#memory, from, to, begin, end);
    this.#cells.copy(from, to, begin, end);
  }

  /** Forgets all tokens and adapters. */
  clear(): void {
    this.adapters.clear();
    this.#cells.clear();
    this.#llama.memory_seq_rm(this.#memory, -1, -1, -1);
  }

  close(): void {
    this.#llama.free(this.#context);
    this.#tap?.close();
    this.#llama.model_free(this.#model);
  }
}

interface Opened {
  readonly llama: Llama;
  readonly model: Pointer;
  readonly tap: ResidualTap | undefined;
  readonly context: Pointer;
}
