import type { EngineEvent, FinishReason, ReasoningStyle } from "@heddle/contracts/engine";
import { ReasoningSplitter, type SplitDelta } from "./reasoning.ts";
import { type ToolCallDelta, ToolCallSplitter } from "./tool-calls.ts";

/** One piece of a choice, split into reasoning, content and calls of tools. */
export interface SplitChoice extends SplitDelta {
  readonly calls: readonly ToolCallDelta[];
}

/** The calls that a choice may have: none, any, or one of the function that the request names. */
export type ChoiceCalls = "none" | "any" | "named";

/** Splits the stream of one choice: its reasoning first, and what is left into content and calls. */
export class ChoiceSplitter {
  readonly #reasoning: ReasoningSplitter;
  readonly #tools: ToolCallSplitter | undefined;
  readonly #isNamed: boolean;

  constructor(style: ReasoningStyle | undefined, calls: ChoiceCalls) {
    this.#reasoning = new ReasoningSplitter(style);
    this.#tools = calls === "none" ? undefined : new ToolCallSplitter();
    this.#isNamed = calls === "named";
  }

  push(delta: EngineEvent & { readonly type: "delta" }): SplitChoice {
    return this.#split(this.#reasoning.push(delta));
  }

  /** Flushes the held text at the end of the stream. */
  finish(): SplitChoice {
    const split = this.#split(this.#reasoning.finish());
    return { ...split, content: split.content + (this.#tools?.finish().text ?? "") };
  }

  /**
   * Why the choice ended, given why its text did. OpenAI ends the call of a named function with `stop`,
   * and a call that a stop string cuts is none to run.
   */
  reasonOf(reason: FinishReason): FinishReason {
    const hasEnded = reason === "stop" || reason === "tool_calls";
    if (!hasEnded || !this.#tools || this.#tools.calls === 0) return reason;
    return this.#isNamed || !this.#tools.isWhole ? "stop" : "tool_calls";
  }

  #split(split: SplitDelta): SplitChoice {
    if (this.#tools === undefined) return { ...split, calls: [] };
    const { text, calls } = this.#tools.push(split.content);
    // Scores of the tokens of calls are no part of the content's.
    const logprobs = text === "" && this.#tools.calls > 0 ? undefined : split.logprobs;
    return { ...split, content: text, logprobs, calls };
  }
}
