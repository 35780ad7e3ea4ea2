import { statSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { Backoff } from "@heddle/base/backoff";
import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import {
  type DeploymentSpec,
  type EngineEvent,
  type EngineFailure,
  type EngineRequest,
  type ReplicaPhase,
  type ReplicaStatus,
  type SubmitOptions,
  sequencesOf,
} from "@heddle/contracts/engine";
import type { Log } from "@heddle/observability/logger";
import { emptyLoad } from "@heddle/rpc/node-codec";
import { submitAdapted } from "./adapted-call.ts";
import { AdapterFiles } from "./adapter-files.ts";
import type { EnginePorts, PullState, StageHost, WorkerEngine } from "./engine-ports.ts";

/** Delays between restarts of an engine that crashes. */
const restartBackoff = { baseMs: 250, maxMs: 30_000 };

/** How long an unload waits for a pull or a load to stop; it then continues in the background. */
const MAX_CLOSE_WAIT_MS = 3_000;

/**
 * The most loads of one file that may fail in a row, crashes included. Then the file is at fault,
 * or a dependency is missing, and a retry would only cost the node.
 */
const MAX_FAILED_LOADS = 5;

/** Failures of a load that are not the file's: a device may return, and other stages' workers change. */
const OF_OTHERS: ReadonlySet<ErrorCode> = new Set([
  "unavailable",
  "precondition_failed",
  "permission_denied",
]);

/** The failures of a deployment's loads, which the next replica continues to count. */
export interface FailedTries {
  readonly message: string;
  /** The file that could not be loaded. */
  readonly file: string;
  /** Loads of that file that have failed in a row. */
  readonly loads: number;
}

/** A request in an engine. */
export interface ReplicaCall {
  cancel(): void;
}

/** The options of a request, and its master. */
export interface InferenceCallOptions extends SubmitOptions {
  readonly master: string;
}

interface OpenCall {
  readonly listener: EventListener;
  readonly master: string;
  readonly sequences: number;
}

export type EventListener = (event: EngineEvent) => void;

/**
 * One deployment on this node: pulls its weights, runs one engine, and restarts it with back-off
 * when it crashes. A replica whose start failed stays `failed` until it is replaced. One whose file
 * was refused, or failed too often, is not retried while that file exists; see `failsAgain`.
 */
export class Replica {
  #spec: DeploymentSpec;
  readonly #ports: EnginePorts;
  readonly #adapters: AdapterFiles;
  readonly #log: Log;
  readonly #onChange: () => void;
  readonly #closing = new AbortController();
  readonly #backoff = new Backoff(restartBackoff);
  /** Requests in the engine by the engine's id. */
  readonly #calls = new Map<number, OpenCall>();
  readonly #running: Promise<void>;
  #phase: ReplicaPhase = "pulling";
  #message = "";
  #failureCode: ErrorCode | undefined;
  #pull: PullState = { pulledBytes: 0, totalBytes: 0, source: "" };
  #engine: WorkerEngine | undefined;
  #lastFailure: string | undefined;
  #modelPath: string | undefined;
  /** The mark of the file when it was last given to an engine. */
  #loadedFile = "";
  /** Loads of it that have failed in a row. */
  #failedLoads = 0;
  #failsAgain = false;
  #nextId = 1;
  #restarts = 0;
  /** Called when its last open request has ended; set while it retires. */
  #onEmpty: (() => void) | undefined;
  /** Keyed by node: since when it is not reached, of those with other stages. */
  #unreachable: ReadonlyMap<string, number> = new Map();

  /** `before` are the failures of the replica that this one replaces. */
  constructor(
    spec: DeploymentSpec,
    ports: EnginePorts,
    log: Log,
    onChange: () => void,
    before?: FailedTries,
  ) {
    this.#spec = spec;
    if (before) {
      this.#lastFailure = before.message;
      this.#loadedFile = before.file;
      this.#failedLoads = before.loads;
      this.#message = `tried again after this failure: ${before.message}`;
    }
    this.#ports = ports;
    this.#adapters = new AdapterFiles(ports.pullWeights, this.#closing.signal);
    this.#log = log;
    this.#onChange = onChange;
    this.#running = this.#run();
  }

  get spec(): DeploymentSpec {
    return this.#spec;
  }

  /** Takes the specification where it differs in the workers of the other stages alone. */
  moveStages(spec: DeploymentSpec): boolean {
    if (spec.engine !== "llama" || this.#spec.engine !== "llama") return false;
    const [before, after] = [this.#spec.stage, spec.stage];
    if (!before?.peers.length || !after?.peers.length) return false;
    const same = { ...spec, stage: { ...after, peers: before.peers } };
    if (!isDeepStrictEqual(same, this.#spec)) return false;
    this.#spec = spec;
    this.#engine?.moveStages?.();
    return true;
  }

  get phase(): ReplicaPhase {
    return this.#phase;
  }

  /** Its failures, or those of the one before it; undefined where there are none. */
  get failedTries(): FailedTries | undefined {
    const message = this.#lastFailure;
    if (message === undefined) return undefined;
    return { message, file: this.#loadedFile, loads: this.#failedLoads };
  }

  /** Whether a retry would fail in the same way: the file is unchanged. */
  get failsAgain(): boolean {
    if (this.#phase !== "failed" || !this.#failsAgain) return false;
    if (this.spec.weights === undefined) return true;
    return this.#modelPath !== undefined && fileMark(this.#modelPath) === this.#loadedFile;
  }

  get isRetiring(): boolean {
    return this.#onEmpty !== undefined;
  }

  /** Whether it is a stage that another worker drives now. */
  get isDriven(): boolean {
    return this.#engine?.stage?.left() !== undefined;
  }

  /**
   * Takes no further requests; resolves when the open ones have ended and no other worker drives it, or
   * after the grace.
   */
  async retire(graceMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onEmpty = resolve;
    if (this.#phase === "ready") this.#setPhase("unloading", "its open requests end first");
    if (this.#calls.size === 0) resolve();
    const ended = Promise.all([promise, this.#engine?.stage?.left()]);
    await resolvesWithin(ended, graceMs);
  }

  /** The stage that another worker drives, and the name of that worker. */
  get stage(): { readonly host: StageHost; readonly driver: string } {
    const { key } = this.spec;
    const part = this.spec.engine === "llama" ? this.spec.stage : undefined;
    const host = this.#engine?.stage;
    if (part && host) return { host, driver: part.driver };
    if (part) throw new AppError("model_loading", this.#refusal().message);
    throw new AppError("precondition_failed", `${key} is no stage that another worker drives`);
  }

  /** Open requests. */
  get openRequests(): number {
    return this.#calls.size;
  }

  /** The status for `master`. */
  status(master = ""): ReplicaStatus {
    const load = this.#engine?.load() ?? emptyLoad;
    return {
      deployment: this.spec.key,
      phase: this.#phase,
      pulledBytes: this.#pull.pulledBytes,
      totalBytes: this.#pull.totalBytes,
      message: this.#message,
      load: { ...load, restarts: load.restarts + this.#restarts },
      info: this.#engine?.info,
      failureCode: this.#failureCode,
      others: this.#sequencesOfOthers(master),
      ...(this.spec.engine === "llama" && this.spec.stage && { stage: this.spec.stage }),
      ...(this.#unreachable.size > 0 && { unreachable: unreachableNow(this.#unreachable) }),
    };
  }

  #sequencesOfOthers(master: string): number {
    let sum = 0;
    for (const call of this.#calls.values()) if (call.master !== master) sum += call.sequences;
    return sum;
  }

  /**
   * The listener gets every event of the request; a refusal is returned and nothing was started.
   */
  submit(
    request: EngineRequest,
    { master, ...options }: InferenceCallOptions,
    listener: EventListener,
  ): ReplicaCall | { readonly refused: EngineFailure } {
    const engine = this.#engine;
    if (this.#phase !== "ready" || !engine) return { refused: this.#refusal() };
    const id = this.#nextId++;
    this.#calls.set(id, { listener, master, sequences: sequencesOf(request) });
    if (request.kind !== undefined || request.adapter === undefined) {
      engine.submit(id, request, options);
      return { cancel: () => engine.cancel(id) };
    }
    const cancel = submitAdapted(
      { id, request, adapter: request.adapter, options },
      {
        files: this.#adapters,
        engine: () => (this.#calls.has(id) ? this.#engine : undefined),
        fail: (error) => this.#dispatch([{ type: "failed", id, error }]),
      },
    );
    return { cancel };
  }

  /**
   * Ends the engine; open requests fail with `unavailable`. Resolves when its process has ended or
   * is about to.
   */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return this.#ended();
    this.#setPhase("unloading", "");
    this.#closing.abort();
    this.#failCalls({ code: "unavailable", message: `${this.spec.key} was unloaded` });
    await this.#engine?.close();
    this.#engine = undefined;
    await this.#ended();
  }

  async #ended(): Promise<void> {
    await resolvesWithin(this.#running, MAX_CLOSE_WAIT_MS);
  }

  async #run(): Promise<void> {
    try {
      const modelPath = await this.#pullWeights();
      this.#modelPath = modelPath;
      for (;;) {
        this.#setPhase("loading", this.#message);
        const { exited } = await this.#startEngine(modelPath);
        const error = await exited;
        if (!error || this.#closing.signal.aborted) return;
        await this.#onCrash(error);
      }
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      const failure = toAppError(error);
      this.#onFailure(this.#classified(failure));
      this.#lastFailure = failure.message;
    }
  }

  /** The failure, marked where it is permanent: the file was refused, or failed too often. */
  #classified(failure: AppError): AppError {
    const { code, message } = failure;
    // A failed pull has given no file to an engine.
    const isOfLoad = this.#phase === "loading" && !OF_OTHERS.has(code);
    this.#failedLoads = isOfLoad ? this.#failedLoads + 1 : 0;
    this.#failsAgain = code === "invalid_value" || this.#failedLoads >= MAX_FAILED_LOADS;
    if (!this.#failsAgain || code === "invalid_value") return failure;
    const end = `It failed ${MAX_FAILED_LOADS} times in a row and is not tried again until its file changes, its model is registered again or \`heddle models pull\` asks for it.`;
    return new AppError("model_failed", `${message.replace(/[.\s]+$/, "")}. ${end}`, failure);
  }

  /** The message goes to API clients; only the operator's log has paths. */
  #onFailure({ code, message, cause }: AppError): void {
    // It is retried again and again: the same failure is logged once.
    if (message !== this.#lastFailure) {
      const { key, weights } = this.spec;
      const path = this.#modelPath ?? weights?.sources.join(" ");
      const detail = cause instanceof Error ? { cause: cause.message } : {};
      const fields = { deployment: key, code, error: message, path, ...detail };
      this.#log.error(fields, "a replica failed");
    }
    this.#failureCode = code;
    this.#setPhase("failed", message);
  }

  async #pullWeights(): Promise<string | undefined> {
    if (this.spec.weights === undefined) return undefined;
    return this.#ports.pullWeights(this.spec.weights, {
      signal: this.#closing.signal,
      stage: this.spec.engine === "llama" ? this.spec.stage : undefined,
      onFault: (source, error) => {
        const fields = { deployment: this.spec.key, source, error };
        this.#log.warn(fields, "a source of weights failed, and the next one is asked");
      },
      onProgress: (progress) => {
        this.#pull = progress;
      },
    });
  }

  /** Resolves when the engine is ready; `exited` is an error where it then crashes. */
  async #startEngine(
    modelPath: string | undefined,
  ): Promise<{ exited: Promise<AppError | undefined> }> {
    const file = modelPath === undefined ? "" : fileMark(modelPath);
    if (file !== this.#loadedFile) this.#failedLoads = 0;
    this.#loadedFile = file;
    this.#unreachable = new Map();
    const exit = Promise.withResolvers<AppError | undefined>();
    const engine = await this.#ports.startEngine({
      spec: this.spec,
      modelPath,
      sink: (events) => this.#dispatch(events),
      onExit: (error) => exit.resolve(error),
      onDown: (error) => {
        const fields = { deployment: this.spec.key, error: error.message };
        this.#log.warn(fields, "an engine is out of service for now");
        const isCrash = this.spec.engine === "llama";
        const reason = isCrash ? `restarting after a crash: ${error.message}` : error.message;
        this.#setPhase("loading", reason);
      },
      onRecovered: () => this.#setPhase("ready", ""),
      stage: () => (this.#spec.engine === "llama" ? this.#spec.stage : undefined),
      onWaiting: (reason, unreachable) => {
        this.#unreachable = unreachable;
        if (this.#message !== reason) this.#setPhase("loading", reason);
      },
      signal: this.#closing.signal,
    });
    // It may have become ready just as it was asked to stop.
    if (this.#closing.signal.aborted) {
      await engine.close();
      throw new AppError("cancelled", `${this.spec.key} was unloaded while it loaded`);
    }
    this.#closing.signal.addEventListener("abort", () => exit.resolve(undefined), { once: true });
    this.#engine = engine;
    this.#failedLoads = 0;
    this.#setPhase("ready", "");
    return { exited: exit.promise };
  }

  async #onCrash(error: AppError): Promise<void> {
    this.#engine = undefined;
    this.#restarts += 1;
    this.#setPhase("loading", `restarting after a crash: ${error.message}`);
    this.#log.error({ deployment: this.spec.key, error: error.message }, "an engine crashed");
    this.#failCalls({ code: "engine_failed", message: error.message });
    await delay(this.#backoff.nextMs(), undefined, { signal: this.#closing.signal });
  }

  #dispatch(events: readonly EngineEvent[]): void {
    for (const event of events) {
      const call = this.#calls.get(event.id);
      if (event.type === "done" || event.type === "failed") this.#calls.delete(event.id);
      if (event.type === "done") this.#backoff.reset();
      call?.listener(event);
    }
    if (this.#calls.size === 0) this.#onEmpty?.();
  }

  #failCalls(error: EngineFailure): void {
    const calls = [...this.#calls];
    this.#calls.clear();
    for (const [id, { listener }] of calls) listener({ type: "failed", id, error });
    this.#onEmpty?.();
  }

  #refusal(): EngineFailure {
    const key = this.spec.key;
    if (this.#phase === "pulling" || this.#phase === "loading") {
      return { code: "model_loading", message: `${key} is ${this.#phase} on this worker` };
    }
    const reason = this.#message ? `: ${this.#message}` : "";
    return { code: "unavailable", message: `${key} is ${this.#phase} on this worker${reason}` };
  }

  #setPhase(phase: ReplicaPhase, message: string): void {
    if (this.isRetiring && phase === "ready") return;
    this.#phase = phase;
    this.#message = message;
    this.#log.info({ deployment: this.spec.key, phase }, "replica");
    this.#onChange();
  }
}

function unreachableNow(sinceMs: ReadonlyMap<string, number>): ReplicaStatus["unreachable"] {
  const nowMs = performance.now();
  return [...sinceMs].map(([node, since]) => ({ node, forMs: Math.round(nowMs - since) }));
}

/** Changes with every change of the file; empty where there is none. */
function fileMark(path: string): string {
  const stat = statSync(path, { throwIfNoEntry: false, bigint: true });
  return stat ? `${stat.dev}/${stat.ino}/${stat.size}/${stat.mtimeNs}/${stat.ctimeNs}` : "";
}
