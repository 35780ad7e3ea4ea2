import { type Duplex, pipeline } from "node:stream";
import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import { residentBytesOf } from "@heddle/base/process/resident-bytes";
import type { Engine, EngineEventSink, EngineInfo, EngineLoad } from "@heddle/contracts/engine";
import { LLAMA_VERSION } from "../../llama/native/abi-guard.ts";
import { NO_LOAD } from "../../llama/parent/llama-engine.ts";
import { FrameMeter } from "./frame-meter.ts";
import { HangWatch } from "./hang-watch.ts";
import { type StageProcess, startStage } from "./stage-process.ts";
import type { StageStart } from "./stage-protocol.ts";
import { StageTimes } from "./stage-times.ts";

const RESTART_BACKOFF = { baseMs: 100, maxMs: 10_000 };
/** Starts in a row that may fail. */
const MAX_FAILED_STARTS = 5;

export interface StageEngineOptions {
  readonly start: StageStart;
  /** Where requests go, for the message of a refusal. */
  readonly driver: string;
  readonly sink: EngineEventSink;
  readonly signal?: AbortSignal | undefined;
  readonly onDown: (reason: AppError) => void;
  readonly onRecovered: () => void;
  readonly onExit: (reason: AppError) => void;
}

/**
 * A stage that is not the last, as an engine. It takes no requests: the last stage's engine drives it
 * by the stream that it joins. A process serves one stream: half a frame of an earlier one would be
 * taken for the beginning of the next one's.
 */
export class StageEngine implements Engine {
  readonly info: EngineInfo;
  readonly #options: StageEngineOptions;
  readonly #closing = new AbortController();
  #process: StageProcess;
  #ready: Promise<StageProcess>;
  #stream: Duplex | undefined;
  /** The process that the latest stream has, or had. */
  #served: StageProcess | undefined;
  #restarts = 0;
  readonly #times = new StageTimes();

  private constructor(options: StageEngineOptions, process: StageProcess) {
    this.#options = options;
    const { device } = process;
    const engine = `llama.cpp ${LLAMA_VERSION} (${device})`;
    const sizes = { contextTokens: 0, vocabularySize: 0, parameters: 0 };
    this.info = { engine, device, ...sizes, fileType: "stage" };
    this.#process = process;
    this.#ready = Promise.resolve(process);
    this.#watch(process);
  }

  /** Resolves when the stage can be joined; rejects with the reason why it cannot be loaded. */
  static async start(options: StageEngineOptions): Promise<StageEngine> {
    return new StageEngine(options, await startStage(options.start, options.signal));
  }

  /** Serves the stream, in place of the one before it. Rejects where the stage cannot be started. */
  async join(stream: Duplex): Promise<void> {
    this.#stream?.destroy();
    this.#stream = stream;
    await this.#served?.close();
    const process = await this.#ready;
    if (this.#stream !== stream || stream.destroyed) return;
    this.#served = process;
    this.#watchFrames(stream, process.frames);
    const watch = new HangWatch({
      pid: process.pid,
      // It may wait until its answer can be sent on.
      hasWork: () => this.#times.isBusy && !process.frames.isPaused(),
      onHang: (forMs) => {
        const message = `the process of the stage did nothing for ${forMs} ms, so it was ended: it hung or was stopped`;
        void process.close(new AppError("engine_failed", message));
      },
    });
    const end = () => {
      watch.close();
      stream.destroy();
      void process.close();
    };
    pipeline(stream, process.frames, end);
    pipeline(process.frames, stream, end);
  }

  /** Resolves when the stream that it serves has ended; undefined where it serves none. */
  left(): Promise<void> | undefined {
    const stream = this.#stream;
    if (!stream || stream.destroyed) return undefined;
    return new Promise((resolve) => stream.once("close", resolve));
  }

  /** Bytes that are no frames end the stage where it reads them. */
  #watchFrames(coming: Duplex, leaving: Duplex): void {
    this.#times.restart();
    const count = (from: Duplex, onFrame: () => void) => {
      const meter = new FrameMeter();
      const onData = (bytes: Uint8Array) => {
        try {
          for (let left = meter.push(bytes); left > 0; left--) onFrame();
        } catch {
          from.off("data", onData);
        }
      };
      from.on("data", onData);
    };
    count(coming, () => this.#times.arrived(performance.now()));
    count(leaving, () => this.#times.left(performance.now()));
  }

  submit(id: number): void {
    const message = `this worker has a part of the model; ${this.#options.driver} takes its requests`;
    this.#options.sink([{ type: "failed", id, error: { code: "unavailable", message } }]);
  }

  cancel(): void {}

  load(): EngineLoad {
    const { maxSequences, kvTokens } = this.#options.start;
    const residentBytes = residentBytesOf(this.#process.pid);
    const sizes = { maxSequences, maxQueued: 0, kvTokens };
    const stage = this.#times.load;
    return { ...NO_LOAD, ...sizes, residentBytes, restarts: this.#restarts, stage };
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#stream?.destroy();
    await this.#process.close();
  }

  #watch(process: StageProcess): void {
    void process.ended.then((reason) => {
      if (this.#closing.signal.aborted) return;
      this.#options.onDown(reason);
      this.#restarts++;
      this.#ready = this.#restart();
      this.#ready.catch(() => undefined);
    });
  }

  async #restart(): Promise<StageProcess> {
    const { signal } = this.#closing;
    try {
      const again = () => startStage(this.#options.start, signal);
      const options = { backoff: RESTART_BACKOFF, maxTries: MAX_FAILED_STARTS, signal };
      const process = await retry(again, options);
      this.#process = process;
      this.#watch(process);
      this.#options.onRecovered();
      return process;
    } catch (error) {
      if (!signal.aborted) this.#options.onExit(toAppError(error));
      throw error;
    }
  }
}
