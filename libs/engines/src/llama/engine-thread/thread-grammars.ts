import { GrammarMatcher, MatchCache } from "../../grammar/matcher.ts";
import type { TokenTrie } from "../../grammar/token-trie.ts";
import { NO_GRAMMAR, type ThreadGrammar } from "../protocol/thread-messages.ts";
import { Grammar, type GrammarTokens } from "../sampling/grammar.ts";

/** The grammars that requests of the engine thread may name. */
export class ThreadGrammars {
  readonly #tokens: Omit<GrammarTokens, "trie">;
  readonly #cache = new MatchCache();
  readonly #grammars = new Map<number, GrammarMatcher>();
  #trie: TokenTrie | undefined;

  constructor(tokens: Omit<GrammarTokens, "trie">) {
    this.#tokens = tokens;
  }

  add({ id, program, trie }: ThreadGrammar): void {
    this.#trie ??= trie;
    this.#grammars.set(id, new GrammarMatcher(program, this.#cache));
  }

  forget(id: number): void {
    const matcher = this.#grammars.get(id);
    if (matcher !== undefined) this.#cache.remove(matcher);
    this.#grammars.delete(id);
  }

  /** The grammar of a new text; undefined where the text is free. */
  begin(id: number): Grammar | undefined {
    if (id === NO_GRAMMAR) return undefined;
    const matcher = this.#grammars.get(id);
    const trie = this.#trie;
    if (matcher === undefined || trie === undefined) throw new Error(`no grammar has the id ${id}`);
    return new Grammar(matcher, { ...this.#tokens, trie });
  }
}
