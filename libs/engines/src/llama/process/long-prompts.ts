import { extname } from "node:path";
import type { EngineInput, InputReading, PairInput, ReadRequest } from "@heddle/contracts/engine";
import type {
  PromptOrder,
  PromptResult,
  PromptThreadStart,
  ReadingOrder,
} from "./prompt-thread.ts";
import { type TurnOwner, TurnThread } from "./turn-thread.ts";

/** Longer prompts are tokenized off the thread that streams: a few thousand characters take 10 ms. */
const MAX_INLINE_CHARS = 8 * 1024;
/** What a message costs beside its characters, counted as such. */
const MESSAGE_CHARS = 64;

/** The size that main threads have; a thread of a worker has 4. What it is for: text-pieces.ts. */
const STACK_MB = 8;

/** A prompt on its way to tokens. */
interface LongReading {
  readonly tokens: Promise<Int32Array>;
  /** Gives the prompt up; one that was not begun is never read. */
  readonly cancel: () => void;
}

/** An input on its way to what was asked of it. */
interface Telling {
  readonly reading: Promise<InputReading>;
  readonly cancel: () => void;
}

/**
 * Reads long prompts, and inputs of which only the reading is asked, in a thread of their own. What
 * an input costs its key is its characters.
 */
export class LongPrompts {
  readonly #thread: TurnThread<PromptOrder | ReadingOrder, PromptResult>;

  /** Calls `onFatal` when the thread fails, which is a bug. */
  constructor(start: PromptThreadStart, onFatal: (error: unknown) => void) {
    const url = new URL(`./prompt-thread${extname(import.meta.url)}`, import.meta.url);
    const resourceLimits = { stackSizeMb: STACK_MB };
    this.#thread = new TurnThread({ url, worker: { workerData: start, resourceLimits } }, onFatal);
  }

  /** Whether the inputs are together long enough to be read here. */
  static areLong(inputs: readonly (EngineInput | PairInput)[]): boolean {
    return inputs.reduce((sum, input) => sum + charsOf(input), 0) > MAX_INLINE_CHARS;
  }

  /** The tokens, or why there are none, as PromptReader has it. */
  read(order: PromptOrder, owner: TurnOwner): LongReading {
    const { result, cancel } = this.#thread.run(order, owner, charsOf(order.input));
    return { tokens: result as Promise<Int32Array>, cancel };
  }

  tell(request: ReadRequest, owner: TurnOwner): Telling {
    const order = { ...request, use: "tell" } as const;
    const { input } = request;
    const cost = input.kind === "tokens" ? input.tokens.length : charsOf(input);
    const { result, cancel } = this.#thread.run(order, owner, cost);
    return { reading: result as Promise<InputReading>, cancel };
  }

  /** Ends the thread; what waits is never read. */
  async close(): Promise<void> {
    await this.#thread.close();
  }
}

/** Roughly what the input costs to read, in characters. */
function charsOf(input: EngineInput | PairInput): number {
  if (input.kind === "pair") return input.query.length + input.document.length;
  if (input.kind === "tokens") return input.suffix?.length ?? 0;
  if (input.kind === "text") return input.text.length + (input.suffix?.length ?? 0);
  let chars = 0;
  for (const { content, name, toolCalls } of input.messages) {
    chars += MESSAGE_CHARS + (content?.length ?? 0) + (name?.length ?? 0);
    for (const call of toolCalls ?? []) {
      chars += MESSAGE_CHARS + call.function.name.length + call.function.arguments.length;
    }
  }
  for (const { name, description, parameters } of input.tools ?? []) {
    chars += MESSAGE_CHARS + name.length + (description?.length ?? 0) + parameters.length;
  }
  return chars;
}
