import { isJsonObject } from "@heddle/base/json-object";
import type { FinishReason, ToolUse } from "@heddle/contracts/engine";
import { ToolCallText } from "./tool-call-text.ts";
import { garbage } from "./upstream-fault.ts";
import { optionalText } from "./upstream-json.ts";

const OPEN = "<think>";
const CLOSE = "</think>";

/**
 * The text of one choice as libllama would generate it: reasoning in `<think>`, then content, then
 * calls of tools as ToolUse describes them.
 */
export class UpstreamChoice {
  readonly #use: ToolUse | undefined;
  readonly #calls: ToolCallText;
  #isReasoning = false;
  #hasContent = false;
  #isFinished = false;

  constructor(use: ToolUse | undefined) {
    this.#use = use;
    this.#calls = new ToolCallText(use?.names ?? []);
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Whether it has text that scores belong to. */
  get hasContent(): boolean {
    return this.#hasContent;
  }

  /** A piece of a text completion. */
  plain(text: string): string {
    return this.#content(text);
  }

  /** A piece of a chat completion. */
  delta(value: unknown): string {
    if (value == null) return "";
    if (!isJsonObject(value)) throw garbage("a delta that is not an object");
    const { reasoning_content: reasoning, content, refusal, tool_calls: calls } = value;
    const thought = this.#reasoning(optionalText(reasoning ?? value["reasoning"], "reasoning"));
    const said = this.#content(
      optionalText(content, "content") + optionalText(refusal, "a refusal"),
    );
    return thought + said + this.#called(calls);
  }

  /** What remains to be written when the choice ends. */
  finish(reason: FinishReason): string {
    this.#isFinished = true;
    const text = this.#calls.end(reason === "length");
    const isCut = reason === "length" || reason === "content_filter";
    if (this.#calls.count === 0 && reason === "tool_calls") {
      throw garbage("an answer that ends with calls of tools and has none");
    }
    if (this.#use?.choice === "required" && this.#calls.count === 0 && !isCut) {
      throw garbage("an answer without the call of a tool that was required");
    }
    return text;
  }

  #reasoning(text: string): string {
    if (text === "") return "";
    const begin = this.#isReasoning ? "" : OPEN;
    this.#isReasoning = true;
    return begin + text;
  }

  #content(text: string): string {
    if (text === "") return "";
    if (this.#calls.count > 0) {
      if (text.trim() === "") return "";
      throw garbage("text behind calls of tools");
    }
    this.#hasContent = true;
    return this.#endReasoning() + text;
  }

  #called(value: unknown): string {
    if (value == null) return "";
    if (!Array.isArray(value)) throw garbage("calls of tools that are not a list");
    let text = "";
    for (const call of value) {
      const named =
        isJsonObject(call) && isJsonObject(call["function"]) ? call["function"] : undefined;
      const index = isJsonObject(call) ? (call["index"] ?? 0) : undefined;
      if (!named || !Number.isSafeInteger(index))
        throw garbage("a call of a tool without its form");
      const name = named["name"] == null ? undefined : optionalText(named["name"], "a tool's name");
      const piece = optionalText(named["arguments"], "arguments of a tool");
      text += this.#calls.push({ index: index as number, name, arguments: piece });
    }
    return text === "" ? "" : this.#endReasoning() + text;
  }

  #endReasoning(): string {
    const end = this.#isReasoning ? CLOSE : "";
    this.#isReasoning = false;
    return end;
  }
}
