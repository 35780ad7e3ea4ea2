import { basename } from "node:path";
import type { Duplex } from "node:stream";
import { AppError } from "@heddle/base/errors";
import type { EngineInfo } from "@heddle/contracts/engine";
import type {
  ChildEvents,
  ChildLoad,
  ChildMessage,
  ChildStart,
  ParentMessage,
} from "../protocol/child-protocol.ts";
import { EventFrameReader } from "../protocol/event-frames.ts";
import type { EngineLauncher, EngineLink } from "./engine-link.ts";
import { forkEngine } from "./fork-engine.ts";

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

export const CHILD_TIMEOUTS: ChildTimeouts = {
  startMs: 10 * 60_000,
  pingIntervalMs: 2_000,
  silenceMs: 20_000,
};

/**
 * One engine process as its parent sees it. A loaded one that does not respond for too long is
 * ended: it hangs or was stopped, and would keep its requests forever.
 */
export class EngineChild {
  readonly #process: EngineLink;
  readonly #listener: EngineChildListener;
  readonly #modelPath: string;
  readonly #timeouts: ChildTimeouts;
  readonly #ready = Promise.withResolvers<{ info: EngineInfo; load: ChildLoad }>();
  readonly #gone = Promise.withResolvers<void>();
  #errorOutput = "";
  #fatal: AppError | undefined;
  #pingTimer: NodeJS.Timeout | undefined;
  #unansweredPings = 0;

  constructor(
    start: ChildStart,
    listener: EngineChildListener,
    timeouts = CHILD_TIMEOUTS,
    launch: EngineLauncher = forkEngine,
  ) {
    this.#listener = listener;
    this.#modelPath = start.modelPath;
    this.#timeouts = timeouts;
    // `exited` reports a failure to start too, for callers that do not await `ready`.
    this.#ready.promise.catch(() => undefined);
    this.#process = launch(
      {
        message: (message) => this.#take(message),
        errorOutput: (text) => {
          this.#errorOutput = (this.#errorOutput + text).slice(-MAX_ERROR_OUTPUT);
        },
        failed: (reason) => {
          this.#fatal ??= reason;
        },
        ended: (how) => this.#exited(how),
      },
      (start.stages ?? 1) > 1,
    );
    this.#readEvents();
    this.send({ kind: "start", start });
  }

  /** Where the frames of the other stages come and go, of one that is the last stage. */
  get stages(): Duplex {
    return this.#process.stages as Duplex;
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
    this.#process.send(message);
  }

  /** Ends the process at once, for the reason if there is one; resolves when it is gone. */
  kill(reason?: AppError): Promise<void> {
    this.#fatal ??= reason;
    this.#process.kill();
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
    this.#process.events.on("data", (chunk: Buffer) => reader.push(chunk));
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

  #exited(how: string): void {
    clearInterval(this.#pingTimer);
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
