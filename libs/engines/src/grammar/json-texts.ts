import type { Dfa, GrammarBuilder } from "./program.ts";
import { inQuotes, quotedCharacters } from "./quoted-text.ts";
import { matchingTexts, type TextSet, toBytes, without, words } from "./regular-text.ts";
import type { Encoding } from "./text-encoding.ts";

/** White space where JSON may have it; bounded, else a model may write nothing but that. */
export const SPACE = "(?: |\\n[ \\t]{0,20})?";
/** A string without escapes, for names that a schema does not know. */
const PLAIN_STRING = '"[^"\\\\\\u0000-\\u001f]*"';

export const ANY_CHARACTER = "[^]";
/** Characters of a string that one automaton counts. */
const MAX_COUNTED = 1000;

/** Automata that most schemas need: compiled once in a thread. */
const COMMON = new Map<string, Dfa>();

function commonDfa(source: string, encoding: Encoding): Dfa {
  const key = `${encoding}:${source}`;
  let dfa = COMMON.get(key);
  if (dfa === undefined) {
    dfa = toBytes(matchingTexts(source), encoding);
    COMMON.set(key, dfa);
  }
  return dfa;
}

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
    return this.#builder.text(commonDfa(source, encoding));
  }

  /** The node of a set of texts as a JSON string, with its quotes: masks are made by automaton. */
  string(texts: TextSet): number {
    return this.#builder.text(inQuotes(toBytes(texts, "json")));
  }

  /** The node of any JSON string of that many characters. */
  characters(min: number, max: number): number {
    if ((max === Number.POSITIVE_INFINITY ? min : max) > MAX_COUNTED) {
      const quote = this.literal('"');
      const content = this.#builder.repeat(this.common(ANY_CHARACTER, "json"), min, max);
      return this.#builder.sequence([quote, content, quote]);
    }
    return this.#kept(`characters:${min},${max}`, () =>
      quotedCharacters(commonDfa(ANY_CHARACTER, "json"), min, max),
    );
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
