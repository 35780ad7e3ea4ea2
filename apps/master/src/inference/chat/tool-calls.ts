import { uniqueSuffix } from "../../http/request-id.ts";

/** A piece of a call; its first one has the id and the name. */
export interface ToolCallDelta {
  readonly index: number;
  readonly id?: string;
  readonly name?: string;
  readonly arguments: string;
}

/** A piece of an answer, split into text and calls. */
interface SplitText {
  text: string;
  readonly calls: ToolCallDelta[];
}

const MARK = "<tool_call>";
const OPEN = `${MARK}\n{"name": "`;
const ARGUMENTS = '", "arguments": ';
const CLOSE = "}\n</tool_call>";

/**
 * Splits the text of a choice whose request has tools into content and calls, which have exactly the
 * form of ToolUse. Text that may be the beginning of a mark is held back.
 */
export class ToolCallSplitter {
  #part: "text" | "name" | "arguments" | "between" = "text";
  #held = "";
  #calls = 0;
  /** Where the arguments are: how deeply nested, and in a string or not. */
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** Calls that were begun. */
  get calls(): number {
    return this.#calls;
  }

  /** Whether no call is cut off. */
  get isWhole(): boolean {
    return this.#part === "text" || this.#part === "between";
  }

  push(text: string): SplitText {
    this.#held += text;
    const out: SplitText = { text: "", calls: [] };
    while (this.#take(out));
    return out;
  }

  /** Lets out what was held back as text; the beginning of a call is none. */
  finish(): SplitText {
    const isText = this.#part === "text" && !this.#held.startsWith(MARK);
    const text = isText ? this.#held : "";
    this.#held = "";
    return { text, calls: [] };
  }

  /** Takes the next part off what is held; false where it is not whole. */
  #take(out: SplitText): boolean {
    switch (this.#part) {
      case "text":
        return this.#takeText(out);
      case "name":
        return this.#takeName(out);
      case "arguments":
        return this.#takeArguments(out);
      case "between":
        return this.#takeClose();
      default:
        this.#part satisfies never;
        return false;
    }
  }

  #takeText(out: SplitText): boolean {
    const at = this.#held.indexOf(OPEN);
    const end = at >= 0 ? at : this.#held.length - beginningOf(OPEN, this.#held);
    // Between calls there are line breaks alone.
    if (this.#calls === 0) out.text += this.#held.slice(0, end);
    this.#held = this.#held.slice(at >= 0 ? at + OPEN.length : end);
    if (at >= 0) this.#part = "name";
    return at >= 0;
  }

  #takeName(out: SplitText): boolean {
    const at = this.#held.indexOf(ARGUMENTS);
    if (at < 0) return false;
    const name = this.#held.slice(0, at);
    const id = `call_${uniqueSuffix()}`;
    out.calls.push({ index: this.#calls++, id, name, arguments: "" });
    this.#held = this.#held.slice(at + ARGUMENTS.length);
    this.#part = "arguments";
    return true;
  }

  #takeArguments(out: SplitText): boolean {
    let length = 0;
    let isWhole = false;
    while (length < this.#held.length && !isWhole)
      isWhole = this.#isLast(this.#held[length++] as string);
    if (length > 0) {
      out.calls.push({ index: this.#calls - 1, arguments: this.#held.slice(0, length) });
    }
    this.#held = this.#held.slice(length);
    if (isWhole) this.#part = "between";
    return isWhole;
  }

  /** Whether the arguments, an object or another value of brackets, end with the character. */
  #isLast(character: string): boolean {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (this.#isInString && character === "\\") this.#isEscaped = true;
    else if (character === '"') this.#isInString = !this.#isInString;
    else if (this.#isInString) return false;
    else if (character === "{" || character === "[") this.#depth++;
    else if (character === "}" || character === "]") return --this.#depth === 0;
    return false;
  }

  #takeClose(): boolean {
    if (this.#held.length < CLOSE.length) return false;
    this.#held = this.#held.slice(CLOSE.length);
    this.#part = "text";
    return true;
  }
}

/** The length of the longest beginning of the mark that the text ends with. */
function beginningOf(mark: string, text: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length;
  }
  return 0;
}
