import type { EngineEvent, FinishReason, ReasoningStyle } from "@heddle/contracts/engine";
import { ReasoningSplitter, type SplitDelta } from "./reasoning.ts";
import { type ToolCallDelta, ToolCallSplitter } from "./tool-calls.ts";

/** One piece of a choice, split into reasoning, content and calls of tools. */
export interface SplitChoice extends SplitDelta {
  readonly calls: readonly ToolCallDelta[];
}

/** Splits the stream of one choice: its reasoning first, and what is left into content and calls. */
export class ChoiceSplitter {
  readonly #reasoning: ReasoningSplitter;
  readonly #tools: ToolCallSplitter | undefined;

  constructor(style: ReasoningStyle | undefined, hasTools: boolean) {
    this.#reasoning = new ReasoningSplitter(style);
    this.#tools = hasTools ? new ToolCallSplitter() : undefined;
  }

  push(delta: EngineEvent & { readonly type: "delta" }): SplitChoice {
    return this.#split(this.#reasoning.push(delta));
  }

  /** Flushes the held text at the end of the stream. */
  finish(): SplitChoice {
    const split = this.#split(this.#reasoning.finish());
    return { ...split, content: split.content + (this.#tools?.finish().text ?? "") };
  }

  /** Why the choice ended, given why its text did. */
  reasonOf(reason: FinishReason): FinishReason {
    return reason === "stop" && (this.#tools?.calls ?? 0) > 0 ? "tool_calls" : reason;
  }

  #split(split: SplitDelta): SplitChoice {
    if (this.#tools === undefined) return { ...split, calls: [] };
    const { text, calls } = this.#tools.push(split.content);
    // Scores of the tokens of calls are no part of the content's.
    const logprobs = text === "" && this.#tools.calls > 0 ? undefined : split.logprobs;
    return { ...split, content: text, logprobs, calls };
  }
}
