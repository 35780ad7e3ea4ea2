import { isJsonObject } from "@heddle/base/json-object";
import { garbage } from "./upstream-fault.ts";

const NAME = /^[A-Za-z0-9_-]{1,128}$/;
const MAX_ARGUMENTS = 4 * 2 ** 20;

interface PartialToolCall {
  readonly index: number;
  /** Its arguments so far. */
  readonly parts: string[];
  length: number;
  /** White space at their end, which is not written yet. */
  held: string;
}

/** A piece of a call, as OpenAI's streams have it. */
export interface ToolCallPiece {
  readonly index: number;
  readonly name: string | undefined;
  readonly arguments: string;
}

/** Writes the calls of one choice as the text that ToolUse describes. */
export class ToolCallText {
  readonly #names: ReadonlySet<string>;
  #open: PartialToolCall | undefined;
  #count = 0;

  /** `names` are those that may be called. */
  constructor(names: readonly string[]) {
    this.#names = new Set(names);
  }

  /** Calls that were begun. */
  get count(): number {
    return this.#count;
  }

  /** Throws an UpstreamFault for what is no such call. */
  push(piece: ToolCallPiece): string {
    let text = "";
    if (piece.index !== this.#open?.index) text = this.end() + this.#begin(piece);
    return text + written(this.#open as PartialToolCall, piece.arguments);
  }

  /** Ends the last call. `isCut`: the answer reached its limit of tokens. */
  end(isCut = false): string {
    const open = this.#open;
    if (open === undefined) return "";
    this.#open = undefined;
    if (isCut) return "";
    const whole = open.parts.join("");
    // Some servers send nothing for a function without parameters.
    if (whole === "") return "{}}\n</tool_call>";
    if (!isObject(whole)) throw garbage("arguments of a tool that are not a JSON object");
    return "}\n</tool_call>";
  }

  #begin({ index, name }: ToolCallPiece): string {
    if (name === undefined || !NAME.test(name)) throw garbage("a call of a tool without a name");
    if (!this.#names.has(name)) throw garbage(`a call of ${name}, which it may not call`);
    if (index < this.#count) throw garbage("calls of tools out of order");
    const gap = this.#count === 0 ? "" : "\n";
    this.#count++;
    this.#open = { index, parts: [], length: 0, held: "" };
    return `${gap}<tool_call>\n{"name": "${name}", "arguments": `;
  }
}

function written(open: PartialToolCall, piece: string): string {
  const all = open.held + piece;
  const kept = all.trimEnd();
  open.held = all.slice(kept.length);
  open.length += piece.length;
  if (open.length > MAX_ARGUMENTS) throw garbage("a call of a tool without end");
  open.parts.push(kept);
  return kept;
}

function isObject(text: string): boolean {
  try {
    return isJsonObject(JSON.parse(text));
  } catch {
    return false;
  }
}
