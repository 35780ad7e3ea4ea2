import { parentPort, workerData } from "node:worker_threads";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { ToolDefinition } from "@heddle/contracts/engine";
import type { GrammarProgram } from "../../grammar/program.ts";
import { SchemaFault } from "../../grammar/schema-fault.ts";
import { compileSchema } from "../../grammar/schema-grammar.ts";
import { buildTokenTrie, type TokenTrie } from "../../grammar/token-trie.ts";
import { compileTools, ToolFault } from "../../grammar/tool-grammar.ts";
import { ENDS_GENERATION, IS_CONTROL, type VocabularyTable } from "../protocol/thread-messages.ts";
import type { TurnResult } from "./turn-thread.ts";

/** What a text must be: an answer by a JSON schema, which is a text here, or calls of tools. */
export interface GrammarSource {
  /** Of the answer; free text without one. */
  readonly schema?: string | undefined;
  /** Those that may be called, with their places in the request. */
  readonly tools?: readonly (ToolDefinition & { readonly at: number })[] | undefined;
  readonly isRequired?: boolean | undefined;
  readonly isParallel?: boolean | undefined;
}

const ANSWER_PARAM = "response_format.json_schema.schema";

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

function compile(source: GrammarSource, trie: TokenTrie): TurnResult<CompiledGrammar> {
  try {
    return { value: { program: programOf(source), trie } };
  } catch (error) {
    const { code, message, param } = refusalOf(error, source);
    return { failure: { code, message, param } };
  }
}

function programOf({ schema, tools, isRequired, isParallel }: GrammarSource): GrammarProgram {
  const answer: unknown = schema === undefined ? undefined : JSON.parse(schema);
  if (tools === undefined) return compileSchema(answer);
  const callable = tools.map(({ name, parameters }) => ({
    name,
    parameters: JSON.parse(parameters) as unknown,
  }));
  return compileTools(callable, {
    isRequired: isRequired === true,
    isParallel: isParallel === true,
    answer,
  });
}

function refusalOf(error: unknown, { tools }: GrammarSource): AppError {
  if (error instanceof SchemaFault) return error.toAppError(ANSWER_PARAM);
  if (!(error instanceof ToolFault)) return toAppError(error);
  const at = tools?.find(({ name }) => name === error.tool)?.at;
  return error.fault.toAppError(`tools[${at}].function.parameters`);
}

serve(workerData as VocabularyTable);
