import type { ReasoningStyle } from "@heddle/contracts/engine";
import { type CallForm, HERMES } from "./call-form.ts";

const THINK = "<think>";
const THOUGHT = "</think>";
const NAME_END = /[^a-zA-Z0-9_-]/;

/**
 * Turns the text of a choice from a family's form of calls into that of ToolUse, piece by piece.
 * Reasoning and content stay as they are; what may be the beginning of a mark is held back.
 */
export class CallReader {
  readonly #form: CallForm;
  /** What an answer that is a call begins with. */
  readonly #beginnings: readonly string[];
  #part: "begin" | "reasoning" | "answer" | "text" | "between" | "name" | "gap" | "arguments";
  #held = "";
  #calls = 0;
  /** Where the arguments are: how deeply nested, and in a string or not. */
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** `names` are the functions that may be called. */
  constructor(form: CallForm, style: ReasoningStyle | undefined, names: readonly string[]) {
    this.#form = form;
    this.#part = style === "open" ? "reasoning" : style === "tagged" ? "begin" : "answer";
    const bare = form.isBare ? names.map((name) => `${form.before}${name}"`) : [];
    this.#beginnings = [form.mark, ...bare];
  }

  push(text: string): string {
    this.#held += text;
    let out = "";
    for (let taken = this.#take(); taken !== undefined; taken = this.#take()) out += taken;
    return out;
  }

  /** Lets out what was held back as text. */
  finish(): string {
    const isText = ["begin", "reasoning", "answer", "text"].includes(this.#part);
    const text = isText ? this.#held : "";
    this.#held = "";
    return text;
  }

  /** What the next part of the held text gives; undefined where it needs more. */
  #take(): string | undefined {
    switch (this.#part) {
      case "begin":
        return this.#begin();
      case "reasoning":
        return this.#upTo(THOUGHT, "answer");
      case "answer":
        return this.#answer();
      case "text":
        return this.#text();
      case "between":
        return this.#between();
      case "name":
        return this.#name();
      case "gap":
        return this.#gap();
      case "arguments":
        return this.#arguments();
      default:
        this.#part satisfies never;
        return undefined;
    }
  }

  #begin(): string | undefined {
    const text = this.#held.trimStart();
    if (THINK.startsWith(text) && text !== THINK) return undefined;
    this.#part = text.startsWith(THINK) ? "reasoning" : "answer";
    return "";
  }

  /** Lets out the text up to the end of the mark, after which the next part begins. */
  #upTo(mark: string, next: "answer"): string | undefined {
    const at = this.#held.indexOf(mark);
    if (at < 0) return this.#letOut(this.#held.length - beginningOf(mark, this.#held));
    this.#part = next;
    return this.#letOut(at + mark.length) ?? "";
  }

  #answer(): string | undefined {
    const text = this.#held.trimStart();
    if (this.#beginnings.some((begin) => begin.startsWith(text) && begin !== text)) {
      return undefined;
    }
    const isCall = this.#beginnings.some((begin) => text.startsWith(begin));
    this.#part = isCall ? "between" : "text";
    return "";
  }

  #text(): string | undefined {
    const { mark } = this.#form;
    const at = this.#held.indexOf(mark);
    if (at < 0) return this.#letOut(this.#held.length - beginningOf(mark, this.#held));
    this.#part = "between";
    return this.#letOut(at) ?? "";
  }

  #between(): string | undefined {
    const { before } = this.#form;
    const at = this.#held.indexOf(before);
    if (at < 0) {
      this.#held = this.#held.slice(this.#held.length - beginningOf(before, this.#held));
      return undefined;
    }
    this.#held = this.#held.slice(at + before.length);
    this.#part = "name";
    return "";
  }

  #name(): string | undefined {
    const end = this.#held.search(NAME_END);
    if (end < 0) return undefined;
    const name = this.#held.slice(0, end);
    this.#held = this.#held.slice(end);
    this.#part = "gap";
    return `${this.#calls++ === 0 ? "" : HERMES.between}${HERMES.before}${name}${HERMES.middle.join("")}`;
  }

  /** Arguments are an object. */
  #gap(): string | undefined {
    const at = this.#held.indexOf("{");
    this.#held = at < 0 ? "" : this.#held.slice(at);
    if (at < 0) return undefined;
    this.#part = "arguments";
    return "";
  }

  #arguments(): string | undefined {
    if (this.#held === "") return undefined;
    let length = 0;
    let isWhole = false;
    while (length < this.#held.length && !isWhole)
      isWhole = this.#isLast(this.#held[length++] as string);
    const text = this.#letOut(length) ?? "";
    if (!isWhole) return text;
    this.#part = "between";
    return text + HERMES.after.join("");
  }

  /** Whether the arguments end with the character. */
  #isLast(character: string): boolean {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (this.#isInString && character === "\\") this.#isEscaped = true;
    else if (character === '"') this.#isInString = !this.#isInString;
    else if (this.#isInString) return false;
    else if (character === "{" || character === "[") this.#depth++;
    else if (character === "}" || character === "]") return --this.#depth === 0;
    return false;
  }

  #letOut(length: number): string | undefined {
    if (length === 0) return undefined;
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return text;
  }
}

/** The length of the longest beginning of the mark that the text ends with. */
function beginningOf(mark: string, text: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length;
  }
  return 0;
}
