import type { ReasoningStyle, ToolDefinition } from "@heddle/contracts/engine";
import { type CallForm, callMarks, HERMES } from "./call-form.ts";
import { beginningOf, ObjectEnd } from "./calls/object-end.ts";
import { rawParameters } from "./calls/raw-parameters.ts";
import { TaggedArguments } from "./calls/tagged-arguments.ts";

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
  /** Where the arguments of a call are. */
  #object = new ObjectEnd();
  #tagged: TaggedArguments | undefined;
  readonly #tools: readonly ToolDefinition[];

  /** `tools` are the functions that may be called. */
  constructor(form: CallForm, style: ReasoningStyle | undefined, tools: readonly ToolDefinition[]) {
    this.#form = form;
    this.#tools = tools;
    this.#part = style === "open" ? "reasoning" : style === "tagged" ? "begin" : "answer";
    const names = tools.map(({ name }) => name);
    this.#beginnings = callMarks(form, names);
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
    this.#beginArguments(name);
    return `${this.#calls++ === 0 ? "" : HERMES.between}${HERMES.before}${name}${HERMES.middle.join("")}`;
  }

  #beginArguments(name: string): void {
    this.#object = new ObjectEnd();
    this.#part = this.#form.isTagged ? "arguments" : "gap";
    if (!this.#form.isTagged) return;
    const tool = this.#tools.find((each) => each.name === name);
    this.#tagged = new TaggedArguments(rawParameters(JSON.parse(tool?.parameters ?? "{}")));
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
    const taken = this.#tagged?.take(this.#held) ?? (this.#tagged ? undefined : this.#ofObject());
    if (taken === undefined) return undefined;
    this.#held = this.#held.slice(taken.length);
    if (!taken.isWhole) return taken.json;
    this.#part = "between";
    return taken.json + HERMES.after.join("");
  }

  #ofObject() {
    const { length, isWhole } = this.#object.take(this.#held);
    return { length, json: this.#held.slice(0, length), isWhole };
  }

  #letOut(length: number): string | undefined {
    if (length === 0) return undefined;
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    return text;
  }
}
