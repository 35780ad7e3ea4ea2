import { parentPort, workerData } from "node:worker_threads";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { ToolDefinition } from "@heddle/contracts/engine";
import { type AnswerStyle, compileAnswer, ToolFault } from "../../grammar/answer-grammar.ts";
import type { GrammarProgram } from "../../grammar/program.ts";
import { SchemaFault } from "../../grammar/schema-fault.ts";
import { buildTokenTrie, type TokenTrie } from "../../grammar/token-trie.ts";
import { ENDS_GENERATION, type VocabularyTable } from "../protocol/thread-messages.ts";
import { grammarBytes, isSilent } from "../tokenizing/vocabulary.ts";
import type { TurnResult } from "./turn-thread.ts";

/** What grammars are compiled with; it can be sent to another thread. */
export interface GrammarStart {
  readonly table: VocabularyTable;
  readonly style: AnswerStyle;
}

/** What a text must be: an answer by a JSON schema, which is a text here, or calls of tools. */
export interface GrammarSource {
  /** The schema of the answer; free text without one. */
  readonly schema?: string | undefined;
  /** The tools that may be called, with their indices in the request. */
  readonly tools?: readonly (ToolDefinition & { readonly at: number })[] | undefined;
  readonly isRequired?: boolean | undefined;
  readonly isParallel?: boolean | undefined;
  /** Whether the prompt of a model that reasons has opened the reasoning. */
  readonly isOpen?: boolean | undefined;
}

const ANSWER_PARAM = "response_format.json_schema.schema";

/** A grammar for the engine thread. */
export interface CompiledGrammar {
  readonly program: GrammarProgram;
  readonly trie: TokenTrie;
}

/** The thread that compiles grammars: a hostile schema may take long, and then the thread is ended. */
function serve({ table, style }: GrammarStart): void {
  if (parentPort === null) throw new Error("grammar-thread runs as a worker thread only");
  const port = parentPort;
  const { flags } = table;
  const isText = (token: number) =>
    !((flags[token] as number) & ENDS_GENERATION) && !isSilent(flags[token] as number);
  const spellings = {
    count: flags.length,
    spelling: (token: number) => grammarBytes(table, token),
  };
  const trie = buildTokenTrie(spellings, isText);
  port.on("message", (source: GrammarSource) => port.postMessage(compile(source, style, trie)));
}

function compile(
  source: GrammarSource,
  style: AnswerStyle,
  trie: TokenTrie,
): TurnResult<CompiledGrammar> {
  try {
    return { value: { program: programOf(source, style), trie } };
  } catch (error) {
    const { code, message, param } = refusalOf(error, source);
    return { failure: { code, message, param } };
  }
}

function programOf(
  { schema, tools = [], isRequired, isParallel, isOpen }: GrammarSource,
  general: AnswerStyle,
): GrammarProgram {
  const reasoning = general.reasoning && (isOpen ? "open" : "tagged");
  const style = { ...general, reasoning } as const;
  const answer: unknown = schema === undefined ? undefined : JSON.parse(schema);
  const callable = tools.map(({ name, parameters }) => ({
    name,
    parameters: JSON.parse(parameters) as unknown,
  }));
  const must = { isRequired: isRequired === true, isParallel: isParallel === true, answer };
  return compileAnswer({ tools: callable, ...must }, style);
}

function refusalOf(error: unknown, { tools }: GrammarSource): AppError {
  if (error instanceof SchemaFault) return error.toAppError(ANSWER_PARAM);
  if (!(error instanceof ToolFault)) return toAppError(error);
  const at = tools?.find(({ name }) => name === error.tool)?.at;
  return error.fault.toAppError(`tools[${at}].function.parameters`);
}

serve(workerData as GrammarStart);
