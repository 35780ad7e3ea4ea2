import type { EngineEvent, ReasoningStyle, TokenLogprob } from "@heddle/contracts/engine";

/** One piece of a choice, split into reasoning and content. */
export interface SplitDelta {
  reasoning: string;
  content: string;
  /** Scores of the content's tokens; those of reasoning are omitted. */
  logprobs: readonly TokenLogprob[] | undefined;
  /** Reasoning tokens of the piece, tags included. */
  reasoningTokens: number;
}

/** Whether text may come late and joined: no stream shows it, and no tokens of reasoning are to be counted. */
export function mayHoldText(isStreamed: boolean, style: ReasoningStyle | undefined): boolean {
  return !isStreamed && style === undefined;
}

const OPEN = "<think>";
const CLOSE = "</think>";

/**
 * Splits a choice's stream into reasoning, between `<think>` and `</think>`, and content. Tokens
 * may cut a tag anywhere, so text that may be the start of a tag is held back. White space after a
 * tag is dropped.
 *
 * Any answer may begin with the tag. Only for a model known to reason (`tagged`) is a later tag
 * recognized too. With `open`, the prompt has opened the tag and the answer begins inside.
 */
export class ReasoningSplitter {
  readonly #style: ReasoningStyle | undefined;
  #part: "undecided" | "reasoning" | "content";
  /** Only white space has followed the last tag. */
  #isBlank: boolean;
  #held = "";
  #heldTokens = 0;
  #heldLogprobs: TokenLogprob[] | undefined;

  constructor(style: ReasoningStyle | undefined) {
    this.#style = style;
    this.#part = style === "open" ? "reasoning" : "undecided";
    this.#isBlank = style === "open";
  }

  push(delta: EngineEvent & { readonly type: "delta" }): SplitDelta {
    const { text, tokens, logprobs } = delta;
    if (this.#isPlain) return { reasoning: "", content: text, logprobs, reasoningTokens: 0 };
    this.#held += text;
    this.#heldTokens += tokens;
    if (logprobs) this.#heldLogprobs = [...(this.#heldLogprobs ?? []), ...logprobs];
    return this.#split(false);
  }

  /** Flushes the held text at the end of the stream. */
  finish(): SplitDelta {
    return this.#split(true);
  }

  /** Whether all further text is content, whatever it looks like. */
  get #isPlain(): boolean {
    return this.#part === "content" && !this.#isBlank && this.#style === undefined;
  }

  #split(isLast: boolean): SplitDelta {
    const out: SplitDelta = { reasoning: "", content: "", logprobs: undefined, reasoningTokens: 0 };
    let hasReasoned = this.#part === "reasoning";
    while (this.#take(out, isLast)) hasReasoned ||= this.#part === "reasoning";
    const isHeld = this.#held !== "" && out.content === "" && !hasReasoned;
    if (!isLast && (this.#part === "undecided" || isHeld)) return out;
    if (hasReasoned) out.reasoningTokens = this.#heldTokens;
    else out.logprobs = this.#heldLogprobs;
    this.#heldTokens = 0;
    this.#heldLogprobs = undefined;
    return out;
  }

  /** Takes the decided part of the held text; true if a tag was passed and more may follow. */
  #take(out: SplitDelta, isLast: boolean): boolean {
    if (this.#part === "undecided") return this.#decide(isLast);
    if (this.#isBlank) this.#held = this.#held.trimStart();
    const isReasoning = this.#part === "reasoning";
    const tag = isReasoning ? CLOSE : OPEN;
    const at = isReasoning || this.#style !== undefined ? this.#held.indexOf(tag) : -1;
    // A model may repeat the tag that its prompt has opened.
    if (isReasoning && this.#isBlank && this.#held.startsWith(OPEN)) return this.#enter(OPEN, 0);
    this.#move(out, at >= 0 ? at : this.#held.length - (isLast ? 0 : this.#undecidedLength(tag)));
    return at >= 0 && this.#enter(tag, 0);
  }

  #decide(isLast: boolean): boolean {
    const text = this.#held.trimStart();
    if (text.startsWith(OPEN)) return this.#enter(OPEN, this.#held.length - text.length);
    if (!isLast && OPEN.startsWith(text)) return false;
    // From the first character on the content is unchanged, white space included.
    this.#part = "content";
    return true;
  }

  /** Continues after a tag at the offset. */
  #enter(tag: typeof OPEN | typeof CLOSE, at: number): true {
    this.#held = this.#held.slice(at + tag.length);
    this.#part = tag === OPEN ? "reasoning" : "content";
    this.#isBlank = true;
    return true;
  }

  #move(out: SplitDelta, length: number): void {
    const text = this.#held.slice(0, length);
    this.#held = this.#held.slice(length);
    if (text === "") return;
    this.#isBlank = false;
    if (this.#part === "reasoning") out.reasoning += text;
    else out.content += text;
  }

  /** Characters at the end of the held text that may be the start of a tag. */
  #undecidedLength(tag: string): number {
    if (this.#part === "content" && this.#style === undefined) return 0;
    const again = this.#isBlank && OPEN.startsWith(this.#held) ? this.#held.length : 0;
    return Math.max(again, beginningOf(tag, this.#held));
  }
}

/** The length of the longest prefix of the tag that the text ends with. */
function beginningOf(tag: string, text: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(tag.slice(0, length))) return length;
  }
  return 0;
}
