import { HERMES } from "../call-form.ts";
import { REASONING_TAGS } from "../reasoning-style.ts";
import { beginningOf, ObjectEnd } from "./object-end.ts";

const [THINK, THOUGHT] = REASONING_TAGS;
const MESSAGE = "<|message|>";
/** What ends a message's text. */
const ENDS = ["<|end|>", "<|start|>", "<|channel|>", "<|return|>", "<|call|>"];
/** What an answer begins with, unless it is plain text. */
const BEGINNINGS = ["<|channel|>", "<|start|>", " to="];
const CHANNEL = /<\|channel\|>\s*(\w+)/;
const RECIPIENT = /\bto=functions\.([a-zA-Z0-9_-]+)/;

/**
 * Turns the messages of gpt-oss into the port's text, piece by piece. The channel `analysis`
 * becomes `<think>`, calls of functions become those of ToolUse, and all other channels text.
 */
export class HarmonyReader {
  #part: "begin" | "header" | "analysis" | "text" | "call" | "ignored" = "begin";
  #held = "";
  #calls = 0;
  #object = new ObjectEnd();

  push(text: string): string {
    this.#held += text;
    let out = "";
    for (let taken = this.#take(); taken !== undefined; taken = this.#take()) out += taken;
    return out;
  }

  /** Lets out what was held back as text. */
  finish(): string {
    const isText = ["begin", "analysis", "text"].includes(this.#part);
    const text = isText ? this.#held : "";
    this.#held = "";
    return text;
  }

  /** What the next part of the held text gives; undefined where it needs more. */
  #take(): string | undefined {
    if (this.#part === "begin") return this.#begin();
    if (this.#part === "header") return this.#header();
    const at = endOf(this.#held);
    const length =
      at ?? this.#held.length - Math.max(...ENDS.map((end) => beginningOf(end, this.#held)));
    if (length === 0 && at === undefined) return undefined;
    const text = this.#written(this.#held.slice(0, length));
    this.#held = this.#held.slice(length);
    if (at === undefined) return text;
    const close = this.#part === "analysis" ? THOUGHT : "";
    this.#part = "header";
    return text + close;
  }

  #begin(): string | undefined {
    if (this.#held === "") return undefined;
    const isOpen = BEGINNINGS.some((begin) => begin !== this.#held && begin.startsWith(this.#held));
    if (isOpen) return undefined;
    const isHeader = BEGINNINGS.some((begin) => this.#held.startsWith(begin));
    this.#part = isHeader ? "header" : "text";
    return "";
  }

  #header(): string | undefined {
    const at = this.#held.indexOf(MESSAGE);
    if (at < 0) return undefined;
    const header = this.#held.slice(0, at);
    this.#held = this.#held.slice(at + MESSAGE.length);
    const name = RECIPIENT.exec(header)?.[1];
    if (name !== undefined) {
      this.#part = "call";
      this.#object = new ObjectEnd();
      const between = this.#calls++ === 0 ? "" : HERMES.between;
      return `${between}${HERMES.before}${name}${HERMES.middle.join("")}`;
    }
    const isAnalysis = CHANNEL.exec(header)?.[1] === "analysis";
    this.#part = isAnalysis ? "analysis" : "text";
    return isAnalysis ? THINK : "";
  }

  /** A part of a message's text. */
  #written(text: string): string {
    if (this.#part !== "call") return this.#part === "ignored" ? "" : text;
    const { length, isWhole } = this.#object.take(text);
    if (!isWhole) return text;
    this.#part = "ignored";
    return text.slice(0, length) + HERMES.after.join("");
  }
}

function endOf(text: string): number | undefined {
  const found = ENDS.map((end) => text.indexOf(end)).filter((at) => at >= 0);
  return found.length === 0 ? undefined : Math.min(...found);
}
