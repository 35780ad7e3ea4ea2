import { beginningOf } from "./object-end.ts";

const PARAMETER = "<parameter=";
const NAME_END = ">\n";
const VALUE_END = "\n</parameter>";
const LAST = "</function>";

/** What a piece of arguments gave: how much of it was read, and the JSON for it. */
interface Taken {
  readonly length: number;
  readonly json: string;
  readonly isWhole: boolean;
}

/** Turns arguments that are elements of their own into a JSON object, piece by piece. */
export class TaggedArguments {
  readonly #raw: ReadonlySet<string>;
  /** The parameter whose value is being read. */
  #value: { readonly isRaw: boolean } | undefined;
  #count = 0;

  /** `raw` are the parameters whose texts are written as they are. */
  constructor(raw: ReadonlySet<string>) {
    this.#raw = raw;
  }

  /** Undefined where more is needed. */
  take(held: string): Taken | undefined {
    return this.#value === undefined ? this.#next(held) : this.#valueOf(held, this.#value.isRaw);
  }

  #next(held: string): Taken | undefined {
    const at = held.indexOf("<");
    if (at < 0) return undefined;
    const text = held.slice(at);
    if (text.startsWith(LAST)) {
      return { length: at + LAST.length, json: this.#count === 0 ? "{}" : "}", isWhole: true };
    }
    if (!text.startsWith(PARAMETER)) {
      const isBegun = PARAMETER.startsWith(text) || LAST.startsWith(text);
      return isBegun ? undefined : { length: at + 1, json: "", isWhole: false };
    }
    const end = text.indexOf(NAME_END);
    if (end < 0) return undefined;
    const name = text.slice(PARAMETER.length, end);
    const isRaw = this.#raw.has(name);
    this.#value = { isRaw };
    const json = `${this.#count++ === 0 ? "{" : ", "}${JSON.stringify(name)}: ${isRaw ? '"' : ""}`;
    return { length: at + end + NAME_END.length, json, isWhole: false };
  }

  #valueOf(held: string, isRaw: boolean): Taken | undefined {
    const at = held.indexOf(VALUE_END);
    const length = at < 0 ? held.length - beginningOf(VALUE_END, held) : at;
    if (at < 0 && length === 0) return undefined;
    const text = held.slice(0, length);
    const json = isRaw ? JSON.stringify(text).slice(1, -1) : text;
    if (at < 0) return { length, json, isWhole: false };
    this.#value = undefined;
    return { length: at + VALUE_END.length, json: isRaw ? `${json}"` : json, isWhole: false };
  }
}
