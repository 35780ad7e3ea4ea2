import { type ChildProcess, fork } from "node:child_process";
import { basename, extname } from "node:path";
import type { Duplex, Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { AppError } from "@heddle/base/errors";
import type { EngineInfo } from "@heddle/contracts/engine";
import { withHugePages } from "../native/huge-pages.ts";
import {
  type ChildEvents,
  type ChildLoad,
  type ChildMessage,
  type ChildStart,
  EVENTS_FD,
  type ParentMessage,
  STAGES_FD,
} from "../protocol/child-protocol.ts";
import { EventFrameReader } from "../protocol/event-frames.ts";

/** What an engine process reports to its owner. */
interface EngineChildListener {
  events(message: ChildEvents): void;
  /** The process is gone; called once, also after `kill`. */
  exited(reason: AppError): void;
}

/** Characters of the process's error output that are kept for its failure message. */
const MAX_ERROR_OUTPUT = 2000;

/** When a process is ended that does not answer. */
export interface ChildTimeouts {
  /** The most time of a load. */
  readonly startMs: number;
  readonly pingIntervalMs: number;
  /** The most time without an answer to a ping. */
  readonly silenceMs: number;
}

/**
 * V8's bounds for each thread of the process, MiB: without them it lets garbage of many requests pile up
 * before it looks through the old generation, and the process seems to leak. Most of what is large is
 * native memory, which these do not count.
 */
const HEAP_FLAGS = [
  "--min-semi-space-size=8",
  "--max-semi-space-size=8",
  "--max-old-space-size=512",
];

export const CHILD_TIMEOUTS: ChildTimeouts = {
  startMs: 10 * 60_000,
  pingIntervalMs: 2_000,
  silenceMs: 20_000,
};

/**
 * One engine process as its parent sees it. One that is loaded and gives did not respond for too
 * long is ended: it hangs or was stopped, and would keep its requests for ever.
 */
export class EngineChild {
  readonly #process: ChildProcess;
  readonly #listener: EngineChildListener;
  readonly #modelPath: string;
  readonly #timeouts: ChildTimeouts;
  readonly #ready = Promise.withResolvers<{ info: EngineInfo; load: ChildLoad }>();
  readonly #gone = Promise.withResolvers<void>();
  #errorOutput = "";
  #fatal: AppError | undefined;
  #pingTimer: NodeJS.Timeout | undefined;
  #unansweredPings = 0;

  constructor(start: ChildStart, listener: EngineChildListener, timeouts = CHILD_TIMEOUTS) {
    this.#listener = listener;
    this.#modelPath = start.modelPath;
    this.#timeouts = timeouts;
    const url = new URL(`../process/engine-process${extname(import.meta.url)}`, import.meta.url);
    this.#process = fork(fileURLToPath(url), {
      serialization: "advanced",
      execArgv: HEAP_FLAGS,
      env: withHugePages(process.env),
      stdio: [
        "ignore",
        "ignore",
        "pipe",
        "ipc",
        "pipe",
        (start.stages ?? 1) > 1 ? "pipe" : "ignore",
      ],
    });
    // `exited` reports a failure to start too, for callers that do not await `ready`.
    this.#ready.promise.catch(() => undefined);
    this.#process.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#errorOutput = (this.#errorOutput + text).slice(-MAX_ERROR_OUTPUT);
    });
    this.#readEvents();
    this.#process.on("message", (message) => this.#take(message as ChildMessage));
    this.#process.on("error", (error) => {
      this.#fatal ??= new AppError("engine_failed", `the engine process failed: ${error.message}`);
    });
    this.#process.on("close", (code, signal) => this.#exited(code, signal));
    this.send({ kind: "start", start });
  }

  /** Where the frames of the other stages come and go, of one that is the last stage. */
  get stages(): Duplex {
    const streams: readonly unknown[] = this.#process.stdio;
    return streams[STAGES_FD] as Duplex;
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** Resolves when the model is loaded; rejects with the reason where the process ends before. */
  get ready(): Promise<{ info: EngineInfo; load: ChildLoad }> {
    return this.#ready.promise;
  }

  /** A message to a process that is gone is lost; `exited` reports that end. */
  send(message: ParentMessage): void {
    if (this.#process.connected) this.#process.send(message, () => undefined);
  }

  /** Ends the process at once, for the reason if there is one; resolves when it is gone. */
  kill(reason?: AppError): Promise<void> {
    this.#fatal ??= reason;
    this.#process.kill("SIGKILL");
    return this.#gone.promise;
  }

  /**
   * Counts pings and not time: a parent that was itself stalled sends none meanwhile, so it does not
   * end its child for its own stall.
   */
  #watch(): void {
    const { pingIntervalMs, silenceMs } = this.#timeouts;
    this.#pingTimer = setInterval(() => {
      if (this.#unansweredPings * pingIntervalMs < silenceMs) {
        this.#unansweredPings++;
        this.send({ kind: "ping" });
        return;
      }
      clearInterval(this.#pingTimer);
      const message = `the engine process did not respond for ${silenceMs} ms, so it was ended: it hung or was stopped`;
      void this.kill(new AppError("engine_failed", message));
    }, pingIntervalMs);
  }

  #readEvents(): void {
    const reader = new EventFrameReader((message) => {
      this.#unansweredPings = 0;
      this.#listener.events(message);
    });
    const pipe = this.#process.stdio[EVENTS_FD] as Readable | null | undefined;
    // A pipe breaks when its process ends, which `close` reports.
    pipe?.on("error", () => undefined);
    pipe?.on("data", (chunk: Buffer) => reader.push(chunk));
  }

  #take(message: ChildMessage): void {
    this.#unansweredPings = 0;
    switch (message.kind) {
      case "pong":
        return;
      case "ready":
        this.#watch();
        this.#ready.resolve({ info: message.info, load: message.load });
        return;
      case "fatal":
        this.#fatal ??= new AppError(message.error.code, message.error.message);
        return;
      default:
        message satisfies never;
    }
  }

  #exited(code: number | null, signal: NodeJS.Signals | null): void {
    clearInterval(this.#pingTimer);
    const how = signal === null ? `with exit code ${code}` : `by signal ${signal}`;
    // The output of native code may go to API clients, so it must not show the file's path.
    const name = basename(this.#modelPath);
    const output = lastLines(this.#errorOutput).replaceAll(this.#modelPath, name);
    const reason =
      this.#fatal ??
      new AppError(
        "engine_failed",
        `the engine process ended ${how}${output === "" ? "" : `; it wrote: ${output}`}`,
      );
    this.#ready.reject(reason);
    this.#gone.resolve();
    this.#listener.exited(reason);
  }
}

/** The output in one line; where native code aborted only the reason, not the stack trace after it. */
function lastLines(output: string): string {
  const lines = output.split("\n").map((line) => line.trim());
  const failed = lines.findLastIndex((line) => /GGML_ASSERT|GGML_ABORT|fatal error/.test(line));
  const shown = failed < 0 ? lines : lines.slice(failed, failed + 1);
  // Drops the directory in which the library was built.
  const short = shown.map((line) => line.replace(/^\/\S*\/(?=[\w.-]+:\d+: )/, ""));
  return short.filter((line) => line !== "").join(" | ");
}
