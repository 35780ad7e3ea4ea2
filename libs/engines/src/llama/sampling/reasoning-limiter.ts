import { REASONING_TAGS } from "../../text/reasoning-style.ts";
import type { ReasoningLimit } from "../protocol/thread-messages.ts";

const [OPEN, CLOSE] = REASONING_TAGS;

/** Any token may be next. */
export const ANY_TOKEN = -1;

/**
 * Follows the text of one choice and forces the end of its reasoning after this many tokens. Within
 * a character it waits for its last byte.
 */
export class ReasoningLimiter {
  readonly #limit: ReasoningLimit;
  /** The bytes of a token, one character for each. */
  readonly #spell: (token: number) => string;
  #part: "begin" | "reasoning" | "closing" | "ended";
  #count = 0;
  #closed = 0;
  #tail = "";

  constructor(limit: ReasoningLimit, bytesOf: (token: number) => Uint8Array) {
    this.#limit = limit;
    this.#spell = (token) => Buffer.from(bytesOf(token)).toString("latin1");
    this.#part = limit.isOpen ? "reasoning" : "begin";
    this.#close();
  }

  /** The token that comes next; ANY_TOKEN where it is free. */
  get due(): number {
    return this.#part === "closing" ? (this.#limit.closing[this.#closed] ?? ANY_TOKEN) : ANY_TOKEN;
  }

  /** Moves on past a token of the text. */
  accept(token: number): void {
    if (this.#part === "ended") return;
    if (this.#part === "closing") {
      if (++this.#closed >= this.#limit.closing.length) this.#part = "ended";
      return;
    }
    this.#tail += this.#spell(token);
    if (this.#part === "begin") this.#begin();
    else this.#reason();
  }

  #begin(): void {
    const text = this.#tail.trimStart();
    if (text.includes(OPEN)) {
      this.#part = "reasoning";
      this.#tail = "";
      this.#close();
    } else if (!OPEN.startsWith(text)) this.#part = "ended";
  }

  #reason(): void {
    this.#count++;
    if (this.#tail.includes(CLOSE)) {
      this.#part = "ended";
      return;
    }
    this.#tail = this.#tail.slice(-CLOSE.length);
    this.#close();
  }

  #close(): void {
    const isSpent = this.#part === "reasoning" && this.#count >= this.#limit.tokens;
    if (isSpent && !endsInside(this.#tail)) this.#part = "closing";
  }
}

/** Whether UTF-8 bytes, one character for each, end inside a character. */
function endsInside(bytes: string): boolean {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes.charCodeAt(bytes.length - back);
    if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2);
    if (byte < 0x80) return false;
  }
  return false;
}
