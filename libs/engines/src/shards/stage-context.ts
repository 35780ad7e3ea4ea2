import { AppError } from "@heddle/base/errors";
import { Batch, DECODED, rowMemory } from "../llama/engine-thread/batch.ts";
import type { Llama } from "../llama/native/bindings.ts";
import type { pickDevices } from "../llama/native/device-split.ts";
import type { Pointer } from "../llama/native/layouts.ts";
import type { CutRule } from "./cut-rules.ts";
import { callbackTap, layerInputTap, type ResidualTap, type TapLibrary } from "./residual-tap.ts";

/** The library of a thread that opens stages. */
export interface StageLibrary {
  readonly llama: Llama;
  readonly taps: TapLibrary;
  /** The GPUs that stages compute on, and how they are named; none on the CPU. */
  readonly devices: ReturnType<typeof pickDevices>;
}

/** What a stage computes with. */
export interface ContextSizes {
  readonly threads: number;
  readonly kvTokens: number;
  readonly maxSequences: number;
  readonly batchTokens: number;
}

/** The rows of a trial. */
const TRIAL_ROWS = 2;
/** The fewest that the library takes for a context. */
const TRIAL_KV_TOKENS = 256;

/** Null where the library refuses it. The last stage has no tap. */
export function openStageContext(
  llama: Llama,
  model: Pointer,
  { threads, kvTokens, maxSequences, batchTokens }: ContextSizes,
  tap: ResidualTap | undefined,
): Pointer {
  const params = Object.assign(llama.context_default_params(), {
    n_ctx: kvTokens,
    n_batch: batchTokens,
    n_ubatch: batchTokens,
    n_seq_max: maxSequences,
    // Else every stage reserves logits for all rows of a batch; fewer than sequences ends the process.
    n_outputs_max: tap ? maxSequences : 0,
    n_threads: threads,
    n_threads_batch: threads,
    flash_attn_type: 1,
    kv_unified: true,
  });
  tap?.prepare(params);
  const context = llama.init_from_model(model, params);
  if (context !== null) tap?.attach(context);
  return context;
}

/**
 * How to read what leaves the shard: as the next block's input where trial rows equal what the
 * callback gets, else by the callback. Throws an AppError `engine_failed` where the callback gets
 * nothing.
 */
export function chooseTap(
  library: Pick<StageLibrary, "llama" | "taps">,
  model: Pointer,
  { hasTap }: CutRule,
): typeof layerInputTap {
  const called = triedTap(library, model, callbackTap);
  if (!called) {
    throw new AppError("engine_failed", "the library does not give what leaves the shard's blocks");
  }
  const isOffered = hasTap && library.taps.layerInput !== undefined;
  const tapped = isOffered ? triedTap(library, model, layerInputTap) : undefined;
  const isSame = tapped?.every((value, i) => value === called[i]) ?? false;
  return isSame ? layerInputTap : callbackTap;
}

/** The rows that leave the shard for some that enter it; undefined where the tap does not give them. */
function triedTap(
  { llama, taps }: Pick<StageLibrary, "llama" | "taps">,
  model: Pointer,
  makeTap: typeof layerInputTap,
): Float32Array | undefined {
  const rowLength = llama.model_n_embd(model);
  const target = { blocks: llama.model_n_layer(model), rowLength, capacity: TRIAL_ROWS };
  const tap = makeTap(taps, target);
  const sizes = { threads: 1, kvTokens: TRIAL_KV_TOKENS, maxSequences: 1, batchTokens: TRIAL_ROWS };
  const context = openStageContext(llama, model, sizes, tap);
  try {
    if (context === null) return undefined;
    const batch = new Batch(TRIAL_ROWS, 1, rowMemory(TRIAL_ROWS, rowLength));
    for (let position = 0; position < TRIAL_ROWS; position++) batch.add(0, position, 0, false);
    batch.setRows(Float32Array.from({ length: TRIAL_ROWS * rowLength }, (_, i) => Math.sin(i)));
    tap.begin();
    return llama.decode(context, batch.struct) === DECODED
      ? tap.rows(TRIAL_ROWS)?.slice()
      : undefined;
  } finally {
    if (context !== null) llama.free(context);
    tap.close();
  }
}
