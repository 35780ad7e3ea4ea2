import { extname } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { AnswerStyle } from "../../grammar/answer-grammar.ts";
import type { ThreadCommand } from "../protocol/thread-messages.ts";
import type { CompiledGrammar, GrammarSource, GrammarStart } from "./grammar-thread.ts";
import { type TurnOwner, TurnThread } from "./turn-thread.ts";

/** Compiled grammars that are kept, and their memory together. */
const MAX_GRAMMARS = 128;
const MAX_BYTES = 32 * 1024 * 1024;

/** What the compilation of one schema may take. */
const COMPILE_CPU_MS = 5000;
const COMPILE_HEAP_MB = 256;

/** A grammar that the engine thread knows, or why there is none. */
interface KeptGrammar {
  readonly id: number;
  readonly bytes: number;
  readonly failure: AppError | undefined;
}

/** Compiles each grammar once, in a thread of its own, and keeps those that were used last. */
export class GrammarBook {
  /** How the model writes. */
  readonly style: AnswerStyle;
  readonly #thread: TurnThread<GrammarSource, CompiledGrammar>;
  readonly #command: (command: ThreadCommand) => void;
  /** Keyed by their sources, the one that was used last at the end. */
  readonly #kept = new Map<string, KeptGrammar>();
  readonly #compiling = new Map<string, Promise<KeptGrammar>>();
  #bytes = 0;
  #nextId = 0;
  #hasTrie = false;

  constructor(
    start: GrammarStart,
    command: (command: ThreadCommand) => void,
    onFatal: (error: unknown) => void,
  ) {
    this.style = start.style;
    const url = new URL(`./grammar-thread${extname(import.meta.url)}`, import.meta.url);
    const resourceLimits = { maxOldGenerationSizeMb: COMPILE_HEAP_MB };
    const limit = { cpuMs: COMPILE_CPU_MS, failure: tooCostly };
    this.#thread = new TurnThread(
      { url, worker: { workerData: start, resourceLimits }, limit },
      onFatal,
    );
    this.#command = command;
  }

  /** The id under which the engine thread has the grammar. Throws an AppError for an invalid grammar. */
  async idOf(source: GrammarSource, owner: TurnOwner): Promise<number> {
    const key = JSON.stringify(source);
    const grammar = this.#kept.get(key) ?? (await this.#compile(key, source, owner));
    if (this.#kept.delete(key)) this.#kept.set(key, grammar);
    if (grammar.failure === undefined) return grammar.id;
    const { code, message, param } = grammar.failure;
    const fallback = source.tools === undefined ? "response_format" : "tools";
    throw new AppError(code, message, { param: param ?? fallback });
  }

  #compile(key: string, source: GrammarSource, owner: TurnOwner): Promise<KeptGrammar> {
    let compiling = this.#compiling.get(key);
    if (compiling === undefined) {
      compiling = this.#thread
        .run(source, owner)
        .result.then(
          (compiled) => this.#add(compiled),
          (failure: AppError) => ({ id: -1, bytes: key.length, failure }),
        )
        .then((grammar) => this.#keep(key, grammar));
      this.#compiling.set(key, compiling);
    }
    return compiling;
  }

  #add({ program, trie }: CompiledGrammar): KeptGrammar {
    const id = this.#nextId++;
    this.#command({ kind: "grammar", id, program, trie: this.#hasTrie ? undefined : trie });
    this.#hasTrie = true;
    return { id, bytes: program.bytes, failure: undefined };
  }

  #keep(key: string, grammar: KeptGrammar): KeptGrammar {
    this.#compiling.delete(key);
    this.#kept.set(key, grammar);
    this.#bytes += grammar.bytes + key.length;
    for (const [oldest, old] of this.#kept) {
      if (this.#kept.size <= MAX_GRAMMARS && this.#bytes <= MAX_BYTES) break;
      if (oldest === key) break;
      this.#kept.delete(oldest);
      this.#bytes -= old.bytes + oldest.length;
      if (old.failure === undefined) this.#command({ kind: "forgetGrammar", id: old.id });
    }
    return grammar;
  }
}

function tooCostly(): AppError {
  const message = `the schema takes more than ${COMPILE_CPU_MS} ms of a processor or ${COMPILE_HEAP_MB} MB to compile; simplify it`;
  return new AppError("invalid_value", message);
}
