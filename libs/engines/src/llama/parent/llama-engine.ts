import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename } from "node:path";
import type { Duplex } from "node:stream";
import { Backoff } from "@heddle/base/backoff";
import { AppError } from "@heddle/base/errors";
import type {
  Engine,
  EngineEventSink,
  EngineInfo,
  EngineLoad,
  EngineOptions,
  EngineRequest,
  SubmitOptions,
} from "@heddle/contracts/engine";
import type { GpuSplit } from "@heddle/contracts/models/model-division";
import { MAX_RUNNING_SEQUENCES } from "../kv-cache/kv-limits.ts";
import type { ChildEvents, ChildLoad, ChildStart } from "../protocol/child-protocol.ts";
import { CHILD_TIMEOUTS, type ChildTimeouts, EngineChild } from "./engine-child.ts";
import type { EngineLauncher } from "./engine-link.ts";

/** What a llama engine is started with. */
export interface LlamaEngineOptions {
  /** A GGUF file on this machine. */
  readonly modelPath: string;
  readonly options: EngineOptions;
  /** Over several devices. */
  readonly split?: GpuSplit | undefined;
  readonly sink: EngineEventSink;
  /** Called once if the engine gives up after repeated crashes; never after `close`. */
  readonly onExit?: ((reason: AppError) => void) | undefined;
  /** Called at each crash after which the engine restarts by itself. */
  readonly onRestart?: ((reason: AppError) => void) | undefined;
  /** Called when it takes requests again after that. */
  readonly onRecovered?: (() => void) | undefined;
  /** Options of its process, which is a child of this one where nothing launches it elsewhere. */
  readonly child?: { readonly timeouts?: Partial<ChildTimeouts>; readonly launch?: EngineLauncher };
  /** Ends the load when it aborts; once the engine is ready, `close` is the way to end it. */
  readonly signal?: AbortSignal | undefined;
}

/** For an engine whose file is the last stage of a model: those before it. */
export interface EarlierStages {
  readonly count: number;
  /** That they have. */
  readonly blocks: number;
  /** Calls under way at once; if absent one for each stage, so that all are busy. */
  readonly callsAtOnce?: number | undefined;
  /**
   * Brings them in, for each process of the engine. The stream carries frames to the first stage and
   * from the one before the last.
   */
  readonly join: (link: Duplex) => void;
}

const DEFAULT_MAX_QUEUED = 256;
const DEFAULT_PREFILL_BUDGET_TOKENS = 128;

/** Crashes in a row after which the engine stays down; a run this long ends the row. */
const MAX_CRASHES_IN_A_ROW = 5;
const STABLE_RUN_MS = 60_000;
const RESTART_BACKOFF = { baseMs: 100, maxMs: 10_000 };

/** What a process reports that has done nothing. */
export const NO_LOAD = {
  running: 0,
  waiting: 0,
  kvUsedTokens: 0,
  promptTokens: 0,
  cachedTokens: 0,
  generatedTokens: 0,
  draftTokens: 0,
  acceptedTokens: 0,
  residentBytes: 0,
};

/**
 * Loads a GGUF model in a process of its own. Resolves when it can answer; rejects with an AppError
 * that says why it cannot, and nothing is left running then.
 */
export async function startLlamaEngine(
  options: LlamaEngineOptions,
  earlier?: EarlierStages,
): Promise<LlamaEngine> {
  const { modelPath, signal } = options;
  const start = {
    ...settleStart(options),
    stages: 1 + (earlier?.count ?? 0),
    earlierBlocks: earlier?.blocks,
    callsAtOnce: earlier?.callsAtOnce,
  };
  const cancelled = new AppError(
    "cancelled",
    `the loading of ${basename(modelPath)} was cancelled`,
  );
  if (signal?.aborted) throw cancelled;
  const engine = new LlamaEngine(options, start, earlier);
  const cancel = () => engine.cancelStart(cancelled);
  signal?.addEventListener("abort", cancel, { once: true });
  try {
    await engine.started;
    return engine;
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
}

/** The engine port over one engine process, which is started again when it crashes. */
export class LlamaEngine implements Engine {
  readonly #options: LlamaEngineOptions;
  readonly #start: ChildStart;
  readonly #earlier: EarlierStages | undefined;
  readonly #backoff = new Backoff(RESTART_BACKOFF);
  readonly #live = new Set<number>();
  readonly #firstStart = Promise.withResolvers<void>();
  #child: EngineChild;
  #phase: "starting" | "ready" | "restarting" | "failed" | "closed" = "starting";
  #info: EngineInfo | undefined;
  #load: ChildLoad | undefined;
  #restarts = 0;
  #crashesInARow = 0;
  #readySinceMs = 0;
  #startTimer: NodeJS.Timeout | undefined;
  #restartTimer: NodeJS.Timeout | undefined;

  /** Use startLlamaEngine, which waits for the model to be loaded. */
  constructor(options: LlamaEngineOptions, start: ChildStart, earlier?: EarlierStages) {
    this.#options = options;
    this.#earlier = earlier;
    this.#start = start;
    this.#child = this.#spawn();
  }

  /** Settles with the first load. */
  get started(): Promise<void> {
    return this.#firstStart.promise;
  }

  /** Ends the first load; `started` rejects with the reason when the process is gone. */
  cancelStart(reason: AppError): void {
    if (this.#phase === "starting") void this.#child.kill(reason);
  }

  get info(): EngineInfo {
    if (this.#info === undefined) throw new Error("the engine was used before it was ready");
    return this.#info;
  }

  /** The engine process, for callers that watch or kill it. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  get modelPath(): string {
    return this.#start.modelPath;
  }

  submit(id: number, request: EngineRequest, options: SubmitOptions): void {
    if (this.#phase !== "ready") {
      const message = `the engine of ${basename(this.#start.modelPath)} is ${this.#phase}; try again later`;
      this.#options.sink([{ type: "failed", id, error: { code: "unavailable", message } }]);
      return;
    }
    this.#live.add(id);
    this.#child.send({ kind: "submit", id, request, options });
  }

  cancel(id: number): void {
    if (this.#live.has(id)) this.#child.send({ kind: "cancel", id });
  }

  load(): EngineLoad {
    const { maxSequences = 0, maxQueued } = this.#start;
    const current = this.#load ?? { ...NO_LOAD, kvTokens: 0, maxSequences, maxQueued };
    return { ...current, restarts: this.#restarts };
  }

  async close(): Promise<void> {
    this.#phase = "closed";
    clearTimeout(this.#startTimer);
    clearTimeout(this.#restartTimer);
    await this.#child.kill();
    this.#failLive("unavailable", "the engine was unloaded");
  }

  #spawn(): EngineChild {
    const listener = {
      events: (message: ChildEvents) => this.#events(message),
      exited: (reason: AppError) => this.#exited(reason),
    };
    const { timeouts: given, launch } = this.#options.child ?? {};
    const timeouts = { ...CHILD_TIMEOUTS, ...given };
    const child = new EngineChild(this.#start, listener, timeouts, launch);
    this.#earlier?.join(child.stages);
    const limitMs = timeouts.startMs;
    const tooSlow = new AppError(
      "engine_failed",
      `the model ${basename(this.#start.modelPath)} was not loaded within ${limitMs} ms; check the speed of the disk that holds it`,
    );
    this.#startTimer = setTimeout(() => void child.kill(tooSlow), limitMs);
    child.ready.then(
      ({ info, load }) => this.#ready(info, load),
      () => undefined,
    );
    return child;
  }

  #ready(info: EngineInfo, load: ChildLoad): void {
    if (this.#phase === "closed") return;
    clearTimeout(this.#startTimer);
    this.#info = info;
    this.#load = load;
    const hasRestarted = this.#phase === "restarting";
    this.#phase = "ready";
    this.#readySinceMs = performance.now();
    this.#firstStart.resolve();
    if (hasRestarted) this.#options.onRecovered?.();
  }

  #events({ events, load }: ChildEvents): void {
    this.#load = load;
    for (const event of events) {
      if (event.type === "done" || event.type === "failed") this.#live.delete(event.id);
    }
    if (events.length > 0) this.#options.sink(events);
  }

  #exited(reason: AppError): void {
    clearTimeout(this.#startTimer);
    if (this.#phase === "closed") return;
    // Its room is known: the next process has as much.
    if (this.#load !== undefined) this.#load = { ...this.#load, ...NO_LOAD };
    this.#failLive("engine_failed", reason.message);
    if (this.#phase === "starting") {
      this.#phase = "failed";
      this.#firstStart.reject(reason);
      return;
    }
    const ranMs = this.#phase === "ready" ? performance.now() - this.#readySinceMs : 0;
    if (ranMs >= STABLE_RUN_MS) {
      this.#crashesInARow = 0;
      this.#backoff.reset();
    }
    if (++this.#crashesInARow > MAX_CRASHES_IN_A_ROW) {
      this.#phase = "failed";
      this.#options.onExit?.(reason);
      return;
    }
    this.#phase = "restarting";
    this.#restarts++;
    this.#options.onRestart?.(reason);
    this.#restartTimer = setTimeout(() => {
      this.#child = this.#spawn();
    }, this.#backoff.nextMs());
  }

  #failLive(code: "engine_failed" | "unavailable", message: string): void {
    const events = [...this.#live].map(
      (id) => ({ type: "failed", id, error: { code, message } }) as const,
    );
    this.#live.clear();
    if (events.length > 0) this.#options.sink(events);
  }
}

function settleStart({ modelPath, options, split }: LlamaEngineOptions): ChildStart {
  const device = options.device ?? "cpu";
  if (!/^(cpu|\d{1,3}(,\d{1,3}){0,15})$/.test(device)) {
    const message = `device is "cpu", a GPU's index, or several joined by commas (at most 16), not ${device}`;
    throw new AppError("invalid_value", message);
  }
  const { contextTokens, kvTokens, maxSequences, chatTemplate } = options;
  const sequences = maxSequences ?? 1;
  if (!(sequences >= 1 && sequences <= MAX_RUNNING_SEQUENCES)) {
    throw new AppError(
      "invalid_value",
      `maxSequences is ${maxSequences}; 1 to ${MAX_RUNNING_SEQUENCES} are possible`,
    );
  }
  return {
    modelPath,
    device,
    gpuLayers: options.gpuLayers ?? -1,
    split,
    threads: options.threads ?? defaultThreads(),
    maxSequences,
    maxQueued: options.maxQueued ?? DEFAULT_MAX_QUEUED,
    draftTokens: options.decoding?.draftTokens,
    deterministic: options.decoding?.deterministic ?? "request",
    contextShift: options.decoding?.contextShift ?? false,
    prefillBudgetTokens: options.prefillBudgetTokens ?? DEFAULT_PREFILL_BUDGET_TOKENS,
    contextTokens,
    kvTokens,
    chatTemplate,
    kvDtype: options.kvDtype,
    stageDtype: options.stageDtype,
  };
}

/** Threads of an engine whose options leave them open. */
export function defaultThreads(): number {
  return Math.max(1, physicalCores() - 1);
}

/**
 * Cores that this process may use; hyper-threads share one and would only slow each other. One of
 * them is left to what feeds the engine: its threads meet at barriers for every tensor, so one
 * without its core stops all.
 */
function physicalCores(): number {
  const allowed = availableParallelism();
  try {
    const cpus = readFileSync("/proc/cpuinfo", "utf8").split("\n\n");
    const field = (cpu: string, name: string) =>
      new RegExp(`^${name}\\s*:\\s*(.*)$`, "m").exec(cpu)?.[1];
    const cores = new Set(
      cpus.flatMap((cpu) => {
        const core = field(cpu, "core id");
        return core === undefined ? [] : [`${field(cpu, "physical id")}/${core}`];
      }),
    );
    return Math.max(1, Math.min(allowed, cores.size || allowed));
  } catch {
    return Math.max(1, allowed);
  }
}
