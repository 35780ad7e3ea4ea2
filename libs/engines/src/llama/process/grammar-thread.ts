import { parentPort, workerData } from "node:worker_threads";
import { toAppError } from "@heddle/base/errors";
import type { GrammarProgram } from "../../grammar/program.ts";
import { SchemaFault } from "../../grammar/schema-fault.ts";
import { compileSchema } from "../../grammar/schema-grammar.ts";
import { buildTokenTrie, type TokenTrie } from "../../grammar/token-trie.ts";
import { ENDS_GENERATION, IS_CONTROL, type VocabularyTable } from "../protocol/thread-messages.ts";
import type { TurnResult } from "./turn-thread.ts";

/** What a text must be, and the parameter that says so. */
export interface GrammarSource {
  readonly param: string;
  /** A JSON schema as text. */
  readonly schema: string;
}

/** A grammar for the engine thread. */
export interface CompiledGrammar {
  readonly program: GrammarProgram;
  readonly trie: TokenTrie;
}

/** The thread that compiles grammars: a hostile schema may take long, and then the thread is ended. */
function serve(table: VocabularyTable): void {
  if (parentPort === null) throw new Error("grammar-thread runs as a worker thread only");
  const port = parentPort;
  const unread = ENDS_GENERATION | IS_CONTROL;
  const trie = buildTokenTrie(table, (token) => !((table.flags[token] as number) & unread));
  port.on("message", (source: GrammarSource) => port.postMessage(compile(source, trie)));
}

function compile({ schema, param }: GrammarSource, trie: TokenTrie): TurnResult<CompiledGrammar> {
  try {
    return { value: { program: compileSchema(JSON.parse(schema)), trie } };
  } catch (error) {
    const fault = error instanceof SchemaFault ? error.toAppError(param) : toAppError(error);
    return { failure: { code: fault.code, message: fault.message, param: fault.param } };
  }
}

serve(workerData as VocabularyTable);
