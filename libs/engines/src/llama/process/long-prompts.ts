import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { AppError } from "@heddle/base/errors";
import type { EngineInput } from "@heddle/contracts/engine";
import { SequenceQueue } from "../engine-thread/sequence-queue.ts";
import type { PromptReading, PromptThreadStart } from "./prompt-thread.ts";

/** Longer prompts are tokenized off the thread that streams: a few thousand characters take 10 ms. */
const MAX_INLINE_CHARS = 8 * 1024;
/** What a message costs beside its characters, counted as such. */
const MESSAGE_CHARS = 64;

/** As main threads have; a thread of a worker has 4. What it is for: text-pieces.ts. */
const STACK_MB = 8;

/** A prompt that waits to be read or is being read. */
interface LongPrompt {
  readonly input: EngineInput;
  readonly fairKey: string;
  readonly priority: number;
  readonly chars: number;
  readonly resolve: (tokens: Int32Array) => void;
  readonly reject: (error: AppError) => void;
}

/** A prompt on its way to tokens. */
interface LongReading {
  readonly tokens: Promise<Int32Array>;
  /** Gives the prompt up; one that was not begun is never read. */
  readonly cancel: () => void;
}

/**
 * Reads long prompts one at a time in a thread of their own, which begins with the first of them. Keys
 * take turns by the characters that were read for them: one that sends megabytes delays its own.
 */
export class LongPrompts {
  readonly #start: PromptThreadStart;
  readonly #onFatal: (error: unknown) => void;
  readonly #queue = new SequenceQueue<LongPrompt>();
  #thread: Worker | undefined;
  #current: LongPrompt | undefined;

  /** Calls `onFatal` when the thread fails, which is a bug. */
  constructor(start: PromptThreadStart, onFatal: (error: unknown) => void) {
    this.#start = start;
    this.#onFatal = onFatal;
  }

  /** Whether the input is long enough to be read here. */
  static isLong(input: EngineInput): boolean {
    return charsOf(input) > MAX_INLINE_CHARS;
  }

  /** The tokens, or why there are none, as PromptReader has it. */
  read(
    input: EngineInput,
    { fairKey, priority }: Pick<LongPrompt, "fairKey" | "priority">,
  ): LongReading {
    const { promise, resolve, reject } = Promise.withResolvers<Int32Array>();
    const prompt = { input, fairKey, priority, chars: charsOf(input), resolve, reject };
    this.#queue.push(prompt);
    this.#next();
    return { tokens: promise, cancel: () => this.#cancel(prompt) };
  }

  /** Ends the thread; what waits is never read. */
  async close(): Promise<void> {
    await this.#thread?.terminate();
  }

  #next(): void {
    if (this.#current !== undefined) return;
    const [first] = this.#queue.ordered(() => 0);
    if (first === undefined) return;
    this.#queue.remove(first);
    this.#current = first;
    this.#thread ??= this.#begin();
    this.#thread.postMessage(first.input);
  }

  #begin(): Worker {
    const url = new URL(`./prompt-thread${extname(import.meta.url)}`, import.meta.url);
    const resourceLimits = { stackSizeMb: STACK_MB };
    const thread = new Worker(url, { workerData: this.#start, resourceLimits });
    thread.on("message", (reading: PromptReading) => this.#take(reading));
    thread.on("error", this.#onFatal);
    return thread;
  }

  #take(reading: PromptReading): void {
    const prompt = this.#current;
    if (prompt === undefined) throw new Error("a prompt was read that nobody had sent");
    this.#current = undefined;
    this.#queue.charge(prompt.fairKey, prompt.chars);
    this.#queue.leave(prompt.fairKey);
    if ("tokens" in reading) prompt.resolve(reading.tokens);
    else {
      const { code, message, param } = reading.failure;
      prompt.reject(new AppError(code, message, { param }));
    }
    this.#next();
  }

  /** What is being read goes on: native code cannot be stopped. */
  #cancel(prompt: LongPrompt): void {
    if (!this.#queue.items.includes(prompt)) return;
    this.#queue.remove(prompt);
    this.#queue.leave(prompt.fairKey);
  }
}

/** Roughly what the input costs to read, in characters. */
function charsOf(input: EngineInput): number {
  if (input.kind === "tokens") return 0;
  if (input.kind === "text") return input.text.length;
  let chars = 0;
  for (const { content, name, toolCalls } of input.messages) {
    chars += MESSAGE_CHARS + (content?.length ?? 0) + (name?.length ?? 0);
    for (const call of toolCalls ?? []) {
      chars += MESSAGE_CHARS + call.function.name.length + call.function.arguments.length;
    }
  }
  return chars;
}
