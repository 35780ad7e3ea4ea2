import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { AppError } from "@heddle/base/errors";
import type { BeforeApplicationShutdown } from "@nestjs/common";
import type { ModerationOrder, ModerationResult } from "./moderation-thread.ts";

/** Calls that wait for the thread, and the characters of their texts. */
const MAX_WAITING = 256;
const MAX_WAITING_CHARS = 4 * 2 ** 20;

interface Waiting {
  readonly chars: number;
  readonly resolve: (scores: number[][]) => void;
  readonly reject: (error: AppError) => void;
}

/** moderation-local, in a thread that begins with the first call. */
export class LocalModeration implements BeforeApplicationShutdown {
  readonly #waiting = new Map<number, Waiting>();
  #thread: Worker | undefined;
  #chars = 0;
  #nextId = 1;

  async beforeApplicationShutdown(): Promise<void> {
    await this.#thread?.terminate();
    this.#fail("This master is shutting down.");
  }

  /** The scores of each text in the order of the categories. Throws `overloaded` at the bounds. */
  score(texts: readonly string[]): Promise<number[][]> {
    const chars = texts.reduce((sum, { length }) => sum + length, 0);
    if (this.#waiting.size >= MAX_WAITING || this.#chars + chars > MAX_WAITING_CHARS) {
      const message = `${this.#waiting.size} calls wait for moderation on this master. Try again shortly.`;
      throw new AppError("overloaded", message, { retryAfterMs: 1000 });
    }
    const { promise, resolve, reject } = Promise.withResolvers<number[][]>();
    const id = this.#nextId++;
    this.#waiting.set(id, { chars, resolve, reject });
    this.#chars += chars;
    this.#thread ??= this.#begin();
    this.#thread.postMessage({ id, texts } satisfies ModerationOrder);
    return promise;
  }

  #begin(): Worker {
    const path = `./moderation-thread${extname(import.meta.url)}`;
    const thread = new Worker(new URL(path, import.meta.url));
    thread.on("message", (result: ModerationResult) => this.#take(result));
    thread.on("error", ({ message }) => this.#fail(`The thread of moderation failed: ${message}.`));
    // A fault of the model's library ends the thread without an error.
    thread.once("exit", () => {
      if (this.#thread === thread) this.#fail("The thread of moderation ended.");
    });
    thread.unref();
    return thread;
  }

  #take(result: ModerationResult): void {
    const waiting = this.#waiting.get(result.id);
    if (waiting === undefined) return;
    this.#waiting.delete(result.id);
    this.#chars -= waiting.chars;
    if ("scores" in result) waiting.resolve(result.scores);
    else waiting.reject(new AppError("unavailable", result.failure));
  }

  /** The next call gets a new thread. */
  #fail(message: string): void {
    this.#thread = undefined;
    for (const { reject } of this.#waiting.values()) reject(new AppError("unavailable", message));
    this.#waiting.clear();
    this.#chars = 0;
  }
}
