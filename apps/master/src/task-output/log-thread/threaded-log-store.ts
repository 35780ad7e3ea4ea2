import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { ThreadCalls } from "@heddle/base/async/thread-calls";
import type { LogPiece } from "@heddle/storage/task-log";
import type { LogName } from "../log-name.ts";
import type { LogStoreOptions } from "../log-store.ts";
import type { LoggedLine, LogStoreApi, LogStorePort, LogStoreStart } from "./log-store-api.ts";

/** The thread inherits the master's large young generation, which it does not need. */
const YOUNG_GENERATION_MIB = 8;

/** A store of logs in a thread of its own: the disk holds up nothing else of this process. */
export class ThreadedLogStore implements LogStorePort {
  readonly #worker: Worker;
  readonly #calls: ThreadCalls<LogStoreApi>;
  readonly #listeners = new Set<(name: LogName) => void>();

  constructor({ log, ...start }: Omit<LogStoreOptions, "files">) {
    const path = `./log-store-thread${extname(import.meta.url)}`;
    this.#worker = new Worker(new URL(path, import.meta.url), {
      workerData: start satisfies LogStoreStart,
      name: "task-logs",
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MIB },
    });
    this.#calls = new ThreadCalls(this.#worker, "the store of logs");
    this.#worker.on("message", ({ line }: { readonly line?: LoggedLine }) => {
      if (line) log[line.level](line.fields, line.message);
    });
    // A programmer's error, which ends this process as in any other of its threads.
    this.#worker.on("error", (error) => {
      throw error;
    });
  }

  onGrown(listener: (name: LogName) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async append(name: LogName, piece: LogPiece & { readonly first: number }) {
    const appended = await this.#calls.call("append", [name, copied(piece)]);
    if (appended.grew) for (const listener of this.#listeners) listener(name);
    return appended;
  }

  state(name: LogName) {
    return this.#calls.call("state", [name]);
  }

  gaps(name: LogName) {
    return this.#calls.call("gaps", [name]);
  }

  fill(name: LogName, piece: LogPiece) {
    return this.#calls.call("fill", [name, copied(piece)]);
  }

  async read(name: LogName, offset: number, maxBytes: number): Promise<LogPiece | undefined> {
    const piece = await this.#calls.call("read", [name, offset, maxBytes]);
    if (!piece) return undefined;
    // A buffer arrives as plain bytes.
    const { buffer, byteOffset, byteLength } = piece.data;
    return { ...piece, data: Buffer.from(buffer, byteOffset, byteLength) };
  }

  offsetAt(name: LogName, unixMs: number) {
    return this.#calls.call("offsetAt", [name, unixMs]);
  }

  list(jobId: string) {
    return this.#calls.call("list", [jobId]);
  }

  sweep(nowMs: number) {
    return this.#calls.call("sweep", [nowMs]);
  }

  async close(): Promise<void> {
    if (this.#calls.ended) return;
    await this.#calls.call("close", []);
    await this.#worker.terminate();
  }
}

/** A message takes all of the memory that its bytes are a part of along, so they get their own. */
function copied<Piece extends LogPiece>(piece: Piece): Piece {
  return { ...piece, data: Buffer.from(new Uint8Array(piece.data).buffer) };
}
