import { parentPort, workerData } from "node:worker_threads";
import { toAppError } from "@heddle/base/errors";
import type { EngineInput } from "@heddle/contracts/engine";
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
  readonly input: EngineInput;
  readonly use: PromptUse;
}

/**
 * The thread that reads long prompts: to render and tokenize megabytes takes seconds, in which the
 * process's main thread is to stream. Its own messages are taken one after another.
 */
function serve({ device, rules }: PromptThreadStart): void {
  if (parentPort === null) throw new Error("prompt-thread runs as a worker thread only");
  const port = parentPort;
  const { llama } = openBindings(findNativeLibrary(device));
  const reader = new PromptReader(llama, rules);
  port.on("message", (order: PromptOrder) => {
    const reading = read(reader, order);
    port.postMessage(reading, "value" in reading ? [reading.value.buffer] : []);
  });
}

function read(
  reader: PromptReader,
  { input, use }: PromptOrder,
): TurnResult<Int32Array<ArrayBuffer>> {
  try {
    return { value: Int32Array.from(reader.read(input, use)) };
  } catch (error) {
    const { code, message, param } = toAppError(error);
    return { failure: { code, message, ...(param === undefined ? {} : { param }) } };
  }
}

serve(workerData as PromptThreadStart);
