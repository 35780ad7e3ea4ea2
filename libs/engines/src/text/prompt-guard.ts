import { randomBytes } from "node:crypto";

/** A piece of a prompt: a token that the template wrote, or text in which no control token is read. */
export type PromptPart = number | string;

/** Two private-use characters around what stands in for a control token's text. */
const OPEN = "\uE0F0";
const CLOSE = "\uE0F1";

/** Where the text of a control token stands. */
interface Found {
  readonly at: number;
  readonly text: string;
  readonly token: number;
}

/**
 * Keeps messages from writing control tokens: whoever sends `<|im_end|>` within a message has sent
 * ten characters, and has not ended the message. What a template is given has every such text
 * replaced by a mark that nobody can guess; what it renders is then taken apart, so that the control
 * tokens left in it are the template's own and the marks are plain text again.
 */
export class PromptGuard {
  readonly #tokens: ReadonlyMap<string, number>;
  readonly #texts: ReadonlyMap<number, string>;
  /** Texts as long as any of these are tried, the longest first. */
  readonly #lengths: readonly number[];
  /** Matches the first character of any of the texts; absent where there are none. */
  readonly #first: RegExp | undefined;
  readonly #marker = `${OPEN}${randomBytes(8).toString("hex")}:`;
  readonly #marks: RegExp;

  /** `controls` are the control tokens of a vocabulary and how they are written. */
  constructor(controls: Iterable<readonly [text: string, token: number]>) {
    this.#tokens = new Map([...controls].filter(([text]) => text !== ""));
    this.#texts = new Map([...this.#tokens].map(([text, token]) => [token, text]));
    const texts = [...this.#tokens.keys()];
    this.#lengths = [...new Set(texts.map(({ length }) => length))].sort((a, b) => b - a);
    const firsts = [...new Set(texts.map((text) => text.charCodeAt(0)))];
    const escaped = firsts.map((code) => `\\u${code.toString(16).padStart(4, "0")}`).join("");
    this.#first = firsts.length === 0 ? undefined : new RegExp(`[${escaped}]`, "g");
    this.#marks = new RegExp(`${this.#marker}(\\d+)${CLOSE}`, "g");
  }

  /** The text with a mark for each control token that is written in it; mostly the text itself. */
  quote(text: string): string {
    let quoted = "";
    let from = 0;
    for (let found = this.#find(text, 0); found; found = this.#find(text, from)) {
      quoted += `${text.slice(from, found.at)}${this.#marker}${found.token}${CLOSE}`;
      from = found.at + found.text.length;
    }
    return from === 0 ? text : quoted + text.slice(from);
  }

  /** What a template made of quoted texts; undefined where no mark is in it, as mostly. */
  split(rendered: string): readonly PromptPart[] | undefined {
    if (!rendered.includes(this.#marker)) return undefined;
    const parts: PromptPart[] = [];
    let from = 0;
    for (let found = this.#find(rendered, 0); found; found = this.#find(rendered, from)) {
      if (found.at > from) parts.push(this.#plain(rendered.slice(from, found.at)));
      parts.push(found.token);
      from = found.at + found.text.length;
    }
    if (from < rendered.length) parts.push(this.#plain(rendered.slice(from)));
    return parts;
  }

  #plain(text: string): string {
    return text.replace(this.#marks, (_mark, token) => this.#texts.get(Number(token)) ?? "");
  }

  /** The first control token that is written at or after `from`; of those at one place the longest. */
  #find(text: string, from: number): Found | undefined {
    const first = this.#first;
    if (first === undefined) return undefined;
    first.lastIndex = from;
    for (let match = first.exec(text); match !== null; match = first.exec(text)) {
      const at = match.index;
      for (const length of this.#lengths) {
        const candidate = text.slice(at, at + length);
        const token = candidate.length === length ? this.#tokens.get(candidate) : undefined;
        if (token !== undefined) return { at, text: candidate, token };
      }
      first.lastIndex = at + 1;
    }
    return undefined;
  }
}
