import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { AppError } from "@heddle/base/errors";
import type { BeforeApplicationShutdown } from "@nestjs/common";
import type { ModerationNews, ModerationOrder, ModerationResult } from "./moderation-thread.ts";

/** Calls that wait for the thread, and the characters of their texts. */
const MAX_WAITING = 256;
const MAX_WAITING_CHARS = 4 * 2 ** 20;

/** A piece of a text takes some ten milliseconds, the load of the model some seconds. */
const SILENCE_MS = 60_000;
const THREAD = new URL(`./moderation-thread${extname(import.meta.url)}`, import.meta.url);

interface Waiting {
  readonly chars: number;
  readonly resolve: (scores: number[][]) => void;
  readonly reject: (error: AppError) => void;
}

/** moderation-local, in a thread that begins with the first call, and again after one that failed. */
export class LocalModeration implements BeforeApplicationShutdown {
  readonly #program: URL;
  readonly #silenceMs: number;
  readonly #waiting = new Map<number, Waiting>();
  #thread: Worker | undefined;
  #timer: NodeJS.Timeout | undefined;
  #chars = 0;
  #nextId = 1;

  /** A thread that sends nothing for this long has failed. */
  constructor(program = THREAD, silenceMs = SILENCE_MS) {
    this.#program = program;
    this.#silenceMs = silenceMs;
  }

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
    if (this.#waiting.size === 1) this.#listen();
    return promise;
  }

  #listen(): void {
    clearTimeout(this.#timer);
    if (this.#waiting.size === 0) return;
    const onSilence = () => {
      void this.#thread?.terminate();
      this.#fail(`The thread of moderation said nothing for ${this.#silenceMs / 1_000} s.`);
    };
    this.#timer = setTimeout(onSilence, this.#silenceMs).unref();
  }

  #begin(): Worker {
    const thread = new Worker(this.#program);
    thread.on("message", (news: ModerationNews) => {
      if (news !== "alive") this.#take(news);
      this.#listen();
    });
    const onEnd = (how: string) => {
      if (this.#thread === thread) this.#fail(`The thread of moderation ${how}.`);
    };
    thread.on("error", ({ message }) => onEnd(`failed: ${message}`));
    thread.once("exit", () => onEnd("ended"));
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
    clearTimeout(this.#timer);
    for (const { reject } of this.#waiting.values()) reject(new AppError("unavailable", message));
    this.#waiting.clear();
    this.#chars = 0;
  }
}
