import type { Dfa, GrammarBuilder } from "./program.ts";
import { matchingTexts, type TextSet, toBytes, without, words } from "./regular-text.ts";
import type { Encoding } from "./text-encoding.ts";

/** White space where JSON may have it; bounded, else a model may write nothing but that. */
export const SPACE = "(?: |\\n[ \\t]{0,20})?";
/** A string without escapes, for names that a schema does not know. */
const PLAIN_STRING = '"[^"\\\\\\u0000-\\u001f]*"';

/** Automata that most schemas need: compiled once in a thread. */
const COMMON = new Map<string, Dfa>();

/** The regular parts of JSON, each compiled once. */
export class JsonTexts {
  readonly #builder: GrammarBuilder;
  readonly #known = new Map<string, Dfa>();

  constructor(builder: GrammarBuilder) {
    this.#builder = builder;
  }

  /** The node of texts that match as a whole. */
  pattern(source: string): number {
    return this.#kept(`match:${source}`, () => toBytes(matchingTexts(source), "plain"));
  }

  /** The same of an expression that no schema has a part in. */
  common(source: string, encoding: Encoding = "plain"): number {
    const key = `${encoding}:${source}`;
    let dfa = COMMON.get(key);
    if (dfa === undefined) {
      dfa = toBytes(matchingTexts(source), encoding);
      COMMON.set(key, dfa);
    }
    return this.#builder.text(dfa);
  }

  /** The node of a set of texts as a JSON string, with its quotes. */
  string(texts: TextSet): number {
    const quote = this.literal('"');
    const content = this.#builder.text(toBytes(texts, "json"));
    return this.#builder.sequence([quote, content, quote]);
  }

  /** The node of one text. */
  literal(text: string): number {
    return this.anyOf([text]);
  }

  /** The node of several texts. */
  anyOf(texts: readonly string[]): number {
    return this.#kept(`words:${JSON.stringify(texts)}`, () => toBytes(words(texts), "plain"));
  }

  /** The node of a member's name and its colon. */
  name(text: string): number {
    return this.#builder.sequence([this.literal(`${JSON.stringify(text)}:`), this.common(SPACE)]);
  }

  /** The node of any member's name but these, and its colon. */
  otherName(names: readonly string[]): number {
    if (names.length === 0) return this.common(`${PLAIN_STRING}:${SPACE}`);
    const spelled = names.map((name) => JSON.stringify(name));
    const key = `other:${JSON.stringify(spelled)}`;
    const text = this.#kept(key, () =>
      toBytes(without(matchingTexts(PLAIN_STRING), spelled), "plain"),
    );
    return this.#builder.sequence([text, this.common(`:${SPACE}`)]);
  }

  #kept(key: string, make: () => Dfa): number {
    let dfa = this.#known.get(key);
    if (dfa === undefined) {
      dfa = make();
      this.#known.set(key, dfa);
    }
    return this.#builder.text(dfa);
  }
}
