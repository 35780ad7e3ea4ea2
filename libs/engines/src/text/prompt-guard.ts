import { randomBytes } from "node:crypto";

/** A piece of a prompt: a token that the template wrote, or text in which no control token is read. */
export type PromptPart = number | string;

/** Two private-use characters around the substitute of a control token's text. */
const OPEN = "\uE0F0";
const CLOSE = "\uE0F1";

/** The place of a control token's text. */
interface Found {
  readonly at: number;
  readonly text: string;
  readonly token: number;
}

/**
 * Keeps messages from writing control tokens: `<|im_end|>` within a message is ten characters of text.
 * - Every such text in the template's input is replaced by a mark that no client can guess.
 * - In the rendered prompt, control tokens are the template's own, and marks become plain text again.
 */
export class PromptGuard {
  readonly #tokens: ReadonlyMap<string, number>;
  readonly #texts: ReadonlyMap<number, string>;
  /** Matches any of the texts, of those at one place the longest; absent where there are none. */
  readonly #written: RegExp | undefined;
  readonly #marker = `${OPEN}${randomBytes(8).toString("hex")}:`;
  readonly #marks: RegExp;

  /** `controls` are the control tokens of a vocabulary and how they are written. */
  constructor(controls: Iterable<readonly [text: string, token: number]>) {
    this.#tokens = new Map([...controls].filter(([text]) => text !== ""));
    this.#texts = new Map([...this.#tokens].map(([text, token]) => [token, text]));
    const longestFirst = [...this.#tokens.keys()].sort((a, b) => b.length - a.length);
    const pattern = longestFirst.map(escaped).join("|");
    this.#written = pattern === "" ? undefined : new RegExp(pattern, "g");
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
    return rendered.includes(this.#marker) ? this.apart(rendered) : undefined;
  }

  /** The text taken apart at its control tokens. */
  apart(rendered: string): readonly PromptPart[] {
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

  /** The text of a prompt, with what its messages say as they say it. */
  shown(rendered: string): string {
    return this.#plain(rendered);
  }

  #plain(text: string): string {
    return text.replace(this.#marks, (_mark, token) => this.#texts.get(Number(token)) ?? "");
  }

  /** The first control token that is written at or after `from`. */
  #find(text: string, from: number): Found | undefined {
    const written = this.#written;
    if (written === undefined) return undefined;
    written.lastIndex = from;
    const match = written.exec(text);
    if (match === null) return undefined;
    return { at: match.index, text: match[0], token: this.#tokens.get(match[0]) as number };
  }
}

/** The text as a pattern that matches it alone. */
function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
