import { parentPort, workerData } from "node:worker_threads";
import { toAppError } from "@heddle/base/errors";
import type { EngineInput, InputReading, PairInput, ReadRequest } from "@heddle/contracts/engine";
import { openBindings } from "../native/bindings.ts";
import { findNativeLibrary } from "../native/native-library.ts";
import { PromptReader, type PromptRules, type PromptUse } from "../tokenizing/prompt-reader.ts";
import type { TurnResult } from "./turn-thread.ts";

/** How the thread is started. */
export interface PromptThreadStart {
  readonly device: string;
  readonly rules: PromptRules;
}

/** A prompt to read, and what for. */
export interface PromptOrder {
  readonly input: EngineInput | PairInput;
  readonly use: PromptUse;
}

/** The reading of an input that was asked for. */
export type ReadingOrder = ReadRequest & { readonly use: "tell" };

/** What the thread gives: the tokens of a prompt, or a reading. */
export type PromptResult = Int32Array | InputReading;

/**
 * The thread that reads long prompts: to render and tokenize megabytes takes seconds, in which the
 * process's main thread is to stream. Its own messages are taken one after another.
 */
function serve({ device, rules }: PromptThreadStart): void {
  if (parentPort === null) throw new Error("prompt-thread runs as a worker thread only");
  const port = parentPort;
  const { llama } = openBindings(findNativeLibrary(device));
  const reader = new PromptReader(llama, rules);
  port.on("message", (order: PromptOrder | ReadingOrder) => {
    const result = read(reader, order);
    const value = "value" in result ? result.value : undefined;
    port.postMessage(result, value instanceof Int32Array ? [value.buffer as ArrayBuffer] : []);
  });
}

function read(reader: PromptReader, order: PromptOrder | ReadingOrder): TurnResult<PromptResult> {
  try {
    if (order.use === "tell") return { value: reader.tell(order) };
    return { value: Int32Array.from(reader.read(order.input, order.use)) };
  } catch (error) {
    const { code, message, param } = toAppError(error);
    return { failure: { code, message, ...(param === undefined ? {} : { param }) } };
  }
}

serve(workerData as PromptThreadStart);
