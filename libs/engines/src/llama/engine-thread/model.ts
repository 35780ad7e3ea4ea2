import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { EngineInfo, KvDtype } from "@heddle/contracts/engine";
import { loadAdapterPart } from "../../shards/adapter-cut.ts";
import { FramePipe } from "../../shards/ring/frame-pipe.ts";
import { type Residual, type RingAdapter, StageRing } from "../../shards/ring/stage-ring.ts";
import type { KvCache } from "../kv-cache/kv-cache.ts";
import { chooseKvLimits, type KvLimits } from "../kv-cache/kv-limits.ts";
import type { KvSequences } from "../kv-cache/prefix-tree.ts";
import { SlotKvCache } from "../kv-cache/slot-kv-cache.ts";
import { streamSlots } from "../kv-cache/stream-copy.ts";
import { UnifiedKvCache } from "../kv-cache/unified-kv-cache.ts";
import { LLAMA_VERSION } from "../native/abi-guard.ts";
import { type Bindings, type Llama, openBindings } from "../native/bindings.ts";
import { pickDevices, setDevices } from "../native/device-split.ts";
import { setLoadMode } from "../native/huge-pages.ts";
import type { Pointer } from "../native/layouts.ts";
import { findNativeLibrary } from "../native/native-library.ts";
import { captureLog } from "../native/native-log.ts";
import { STAGES_FD } from "../protocol/child-protocol.ts";
import type { ModelAbilities, ThreadStart, VocabularyTable } from "../protocol/thread-messages.ts";
import { MAX_DRAFT_TOKENS } from "../speculation/drafter.ts";
import { grammarBytes, metadataOf, readVocabulary } from "../tokenizing/vocabulary.ts";
import { BATCH_TOKENS, type Batch, NO_KV_SLOT, STAGES_LOST, STAGES_UNFIT } from "./batch.ts";
import { MAX_ADAPTER_BYTES, MAX_GIVEN_BYTES } from "./set-adapter.ts";

/** A model in memory with one context, ready to decode; it belongs to the thread that made it. */
export interface LoadedModel {
  readonly llama: Llama;
  readonly native: Pointer;
  readonly context: Pointer;
  readonly vocabulary: Pointer;
  readonly vocabularySize: number;
  /** See VocabularyTable.flags. */
  readonly flags: Uint8Array;
  /** A token as grammars read it. */
  readonly tokenBytes: (token: number) => Uint8Array;
  readonly eosToken: number;
  readonly cache: KvCache;
  readonly limits: KvLimits;
  readonly batchTokens: number;
  /** The row length of the residual stream, where other stages compute before this one; else 0. */
  readonly rowLength: number;
  /** This many batches may be sent before the first of them is decoded. */
  readonly callsAtOnce: number;
  /** Gives the stages before this one the batch, where there are some. */
  readonly send: (batch: Batch, adapter?: RingAdapter) => void;
  /** Loads an adapter's file, or the part for this stage; null where the library refuses it. */
  readonly loadAdapter: (path: string) => Pointer;
  /** The largest file of an adapter. */
  readonly maxAdapterBytes: number;
  /** Where stages before this one have the adapter, they forget it. */
  readonly forgetAdapter: (number: number) => void;
  /** The oldest batch that was sent. Gives what the library answers: DECODED, NO_KV_SLOT or another fault. */
  readonly decode: (batch: Batch) => number;
  readonly pooling: ModelPooling;
  readonly prefillBudgetTokens: number;
  /** The most tokens of a draft; 0 for none. */
  readonly draftTokens: number;
  /** Whether a sequence that fills its context continues without a part of it. */
  readonly contextShift: boolean;
}

/** How a model's rows become the vector of an input. */
export interface ModelPooling {
  /** The library pools, as the model's file says; else the engine takes the mean. */
  readonly isNative: boolean;
  /** An input is computed in one call: its rows depend on later ones, or the library needs them all. */
  readonly isWhole: boolean;
  /** Numbers of a vector. */
  readonly size: number;
}

/** A loaded model and what others need to know of it. */
interface Loading {
  readonly model: LoadedModel;
  readonly info: EngineInfo;
  readonly abilities: ModelAbilities;
  readonly table: VocabularyTable;
  readonly chatTemplate: string;
}

/** In llama_pooling_type: the model says nothing, the last row, and a score in place of a vector. */
const NO_POOLING = 0;
const LAST = 3;
const RANK = 4;

/** The cache's keys and values: their type of ggml, and bytes of each number. */
const KV_TYPES: Readonly<Record<KvDtype, { readonly type: number; readonly bytes: number }>> = {
  f16: { type: 1, bytes: 2 },
  q8_0: { type: 8, bytes: 34 / 32 },
};

/** Loads the model in this thread. Throws an AppError that says what failed and how to fix it. */
export function loadModel(start: ThreadStart): Loading {
  const library = findNativeLibrary(start.device);
  const bindings = openBindings(library);
  const log = captureLog(bindings);
  try {
    bindings.ggml.load_all_from_path(library.directory);
    bindings.llama.backend_init();
    const device = pickDevices(bindings, start.device);
    const model = readModel(bindings.llama, start, device.pointers);
    if (model === null) throw failed(start.modelPath, "could not be loaded", log.lines());
    return makeContext(bindings, start, model, device.name, log.lines);
  } finally {
    log.silence();
  }
}

function readModel(llama: Llama, start: ThreadStart, devices: readonly bigint[]): Pointer {
  const params = llama.model_default_params();
  setDevices(params, devices, start.split);
  params.n_gpu_layers = devices.length === 0 ? 0 : start.gpuLayers;
  if (devices.length === 0) setLoadMode(params, start.modelPath);
  return llama.model_load_from_file(start.modelPath, params);
}

function makeContext(
  bindings: Bindings,
  start: ThreadStart,
  model: Pointer,
  device: string,
  logLines: () => readonly string[],
): Loading {
  const { llama } = bindings;
  if (llama.model_has_encoder(model)) {
    throw failed(start.modelPath, "has an encoder; only decoder models generate text here", []);
  }
  const recurrent = llama.model_is_recurrent(model) || llama.model_is_hybrid(model);
  const { context, limits, isEncoder, ...shape } = openContext(llama, start, model, {
    canShare: !recurrent,
    logLines,
  });
  const vocabulary = llama.model_get_vocab(model);
  const rowLength = llama.model_n_embd(model);
  const { stages = 1 } = start;
  const residual: Residual = { rowLength, dtype: start.stageDtype ?? "f32" };
  const ring = stages > 1 ? ringOf(llama, context, residual) : undefined;
  const table = readVocabulary(llama, model);
  const ranks = llama.pooling_type(context) === RANK;
  const vocabularySize = table.flags.length;
  return {
    table,
    abilities: {
      generates: !isEncoder,
      embeds: !ranks,
      ranks,
      unrepeatable: unrepeatable(limits.layout, stages),
    },
    chatTemplate: llama.model_chat_template(model, null) ?? "",
    info: {
      ...describe(llama, model, device, limits.contextTokens, vocabularySize),
      ...(ranks && { ranks }),
    },
    model: {
      llama,
      native: model,
      context,
      vocabulary,
      vocabularySize,
      flags: table.flags,
      tokenBytes: (token) => grammarBytes(table, token),
      eosToken: Math.max(0, llama.vocab_eos(vocabulary)),
      cache: cacheOf(llama, context, limits, { canShare: !recurrent, ring }),
      rowLength: ring ? rowLength : 0,
      callsAtOnce: start.callsAtOnce ?? stages,
      send: (batch, adapter) => ring?.send(batch, adapter),
      ...adaptersOf(llama, model, start, ring),
      decode: decoderOf(llama, context, ring),
      limits,
      ...shape,
      prefillBudgetTokens: start.prefillBudgetTokens,
      draftTokens: Math.min(start.draftTokens ?? MAX_DRAFT_TOKENS, MAX_DRAFT_TOKENS),
      contextShift: start.contextShift ?? false,
    },
  };
}

interface OpenedContext
  extends Pick<LoadedModel, "context" | "limits" | "batchTokens" | "pooling"> {
  /** An encoder has no KV cache and generates no tokens. */
  readonly isEncoder: boolean;
}

/** What a context needs is known of one: a model whose inputs must not be cut gets a second. */
function openContext(
  llama: Llama,
  start: ThreadStart,
  model: Pointer,
  { canShare, logLines }: { canShare: boolean; logLines: () => readonly string[] },
): OpenedContext {
  const open = (limits: KvLimits, batchTokens: number): Pointer => {
    const context = llama.init_from_model(model, contextParams(llama, start, limits, batchTokens));
    if (context !== null) return context;
    const also = start.kvDtype === "q8_0" ? ", or leave kv_dtype out" : "";
    const advice = `got no context of ${limits.kvTokens} KV tokens; lower kvTokens or contextTokens${also}`;
    throw failed(start.modelPath, advice, logLines());
  };
  const limits = limitsOf(llama, model, start, canShare);
  const context = open(limits, BATCH_TOKENS);
  const type = llama.pooling_type(context);
  const isEncoder = llama.get_memory(context) === null;
  const isWhole = isEncoder || (type !== NO_POOLING && type !== LAST) || !isCausal(llama, model);
  const size = type === RANK ? llama.model_n_cls_out(model) : llama.model_n_embd_out(model);
  const pooling = { isNative: type !== NO_POOLING, isWhole, size };
  if (isWhole && isLastStage(start)) {
    throw failed(start.modelPath, "computes inputs whole, so that stages cannot", []);
  }
  const batchTokens = isWhole ? Math.max(BATCH_TOKENS, limits.contextTokens) : BATCH_TOKENS;
  if (!isEncoder && batchTokens === BATCH_TOKENS) {
    return { context, limits, batchTokens, pooling, isEncoder };
  }
  llama.free(context);
  const own = isEncoder ? encoderLimits(limits) : limits;
  return { context: open(own, batchTokens), limits: own, batchTokens, pooling, isEncoder };
}

/** Without a cache there are no cells: only the inputs at once are bounded, each by its context. */
function encoderLimits({ contextTokens, maxSequences }: KvLimits): KvLimits {
  const kvTokens = contextTokens * maxSequences;
  return { layout: "unified", contextTokens, kvTokens, maxSequences, retainedTokens: 0 };
}

function isCausal(llama: Llama, model: Pointer): boolean {
  const architecture = metadataOf(llama, model, "general.architecture");
  return metadataOf(llama, model, `${architecture}.attention.causal`) !== "false";
}

function limitsOf(llama: Llama, model: Pointer, start: ThreadStart, canShare: boolean): KvLimits {
  const { deterministic = "request", kvDtype = "f16" } = start;
  const bytesPerToken =
    (2 *
      KV_TYPES[kvDtype].bytes *
      llama.model_n_layer(model) *
      llama.model_n_head_kv(model) *
      llama.model_n_embd(model)) /
    Math.max(1, llama.model_n_head(model));
  const trainedTokens = llama.model_n_ctx_train(model);
  if (trainedTokens < 1) {
    // The library reads what is larger than 2^31 as a negative number.
    const message = `the model ${basename(start.modelPath)} says that its context has ${trainedTokens >>> 0} tokens, which cannot be; give another file`;
    throw new AppError("invalid_value", message);
  }
  const facts = {
    trainedTokens,
    bytesPerToken,
    freeBytes: process.availableMemory(),
    onCpu: start.device === "cpu",
    canShare,
  };
  if (isLastStage(start) && deterministic !== "request") {
    throw unfitForStages("decoding.deterministic", "request");
  }
  if (isLastStage(start) && kvDtype !== "f16") throw unfitForStages("kv_dtype", "f16");
  const needsSlots = deterministic !== "request";
  return chooseKvLimits(facts, { ...start, needsSlots, needsPool: isLastStage(start) });
}

/** Why deterministic requests are refused; undefined where they are not. */
function unrepeatable(layout: KvLimits["layout"], stages: number): string | undefined {
  if (stages > 1) {
    return "workers divide this model, whose numbers then depend on other requests; register it with the placement `whole`";
  }
  if (layout === "slots") return undefined;
  return "this replica's KV cache is one pool; deploy the model with `deterministic` set in `decoding`";
}

function unfitForStages(option: string, only: string): AppError {
  const message = `${option}: a model that is divided between workers does not support it; set it to \`${only}\``;
  return new AppError("invalid_value", message);
}

/** The book-keeping that belongs to the layout of the native cache. */
function cacheOf(
  llama: Llama,
  context: Pointer,
  limits: KvLimits,
  { canShare, ring }: { canShare: boolean; ring: StageRing | undefined },
): KvCache {
  if (limits.layout === "slots") return new SlotKvCache(streamSlots(llama, context), limits);
  const memory = llama.get_memory(context);
  if (memory === null)
    return new UnifiedKvCache({ copy: () => {}, remove: () => {} }, limits, false);
  return new UnifiedKvCache(ring ?? sequencesOf(llama, memory), limits, canShare);
}

function sequencesOf(llama: Llama, memory: Pointer): KvSequences {
  return {
    copy: (from, to, begin, end) => llama.memory_seq_cp(memory, from, to, begin, end),
    remove: (sequence, begin, end) => {
      llama.memory_seq_rm(memory, sequence, begin, end);
    },
  };
}

function ringOf(llama: Llama, context: Pointer, residual: Residual): StageRing {
  const memory = llama.get_memory(context);
  const clear = () => llama.memory_seq_rm(memory, -1, -1, -1);
  const own = { ...sequencesOf(llama, memory), clear };
  return new StageRing(new FramePipe(STAGES_FD), residual, own);
}

function isLastStage({ stages = 1 }: ThreadStart): boolean {
  return stages > 1;
}

/** Each stage of a divided model loads the part of an adapter for its blocks; the last one sends it. */
function adaptersOf(
  llama: Llama,
  model: Pointer,
  { modelPath, earlierBlocks = 0 }: ThreadStart,
  ring: StageRing | undefined,
): Pick<LoadedModel, "loadAdapter" | "maxAdapterBytes" | "forgetAdapter"> {
  if (!ring) {
    return {
      loadAdapter: (path) => llama.adapter_lora_init(model, path),
      maxAdapterBytes: MAX_ADAPTER_BYTES,
      forgetAdapter: () => {},
    };
  }
  const to = earlierBlocks + llama.model_n_layer(model);
  const shard = { path: modelPath, from: earlierBlocks, to, isLast: true };
  return {
    loadAdapter: (path) => loadAdapterPart(llama, model, readFileSync(path), shard),
    maxAdapterBytes: MAX_GIVEN_BYTES,
    forgetAdapter: (number) => ring.forget(number),
  };
}

/** The stages before this one decode first, and give what left the last of them. */
function decoderOf(
  llama: Llama,
  context: Pointer,
  ring: StageRing | undefined,
): LoadedModel["decode"] {
  if (!ring) return (batch) => llama.decode(context, batch.struct);
  return (batch) => {
    const hidden = ring.receive(batch);
    if (hidden === "full") return NO_KV_SLOT;
    if (hidden === "lost") return STAGES_LOST;
    if (hidden === "unfit") return STAGES_UNFIT;
    batch.setRows(hidden);
    const answer = llama.decode(context, batch.struct);
    if (answer === NO_KV_SLOT) ring.undo(batch);
    return answer;
  };
}

function contextParams(llama: Llama, start: ThreadStart, limits: KvLimits, batchTokens: number) {
  const { type } = KV_TYPES[start.kvDtype ?? "f16"];
  return Object.assign(llama.context_default_params(), {
    n_ctx: limits.kvTokens,
    n_batch: batchTokens,
    n_ubatch: batchTokens,
    n_seq_max: limits.maxSequences,
    n_threads: start.threads,
    n_threads_batch: start.threads,
    flash_attn_type: 1,
    type_k: type,
    type_v: type,
    kv_unified: limits.layout === "unified",
  });
}

function describe(
  llama: Llama,
  model: Pointer,
  device: string,
  contextTokens: number,
  vocabularySize: number,
): EngineInfo {
  const buffer = new Uint8Array(256);
  const length = llama.model_desc(model, buffer, buffer.length);
  return {
    engine: `llama.cpp ${LLAMA_VERSION} (${device})`,
    device,
    contextTokens,
    vocabularySize,
    parameters: Number(llama.model_n_params(model)),
    fileType: Buffer.from(buffer.subarray(0, Math.max(0, length))).toString("utf8"),
  };
}

function failed(path: string, what: string, log: readonly string[]): AppError {
  // The message may go to API clients, whom the place of the file does not concern.
  const name = basename(path);
  const detail = log.length === 0 ? "" : `: ${log.join(" | ").replaceAll(path, name)}`;
  return new AppError("engine_failed", `the model ${name} ${what}${detail}`);
}
