import { JsonTexts } from "./json-texts.ts";
import { GrammarBuilder, type GrammarProgram } from "./program.ts";
import { lacking, toBytes } from "./regular-text.ts";
import { SchemaFault } from "./schema-fault.ts";
import { SchemaGrammar } from "./schema-grammar.ts";

/** What comes before and behind a call's name and arguments; see ToolUse. */
const CALL_OPEN = '<tool_call>\n{"name": "';
const ARGUMENTS = '", "arguments": ';
const CALL_CLOSE = "}\n</tool_call>";
const MARK = "<tool_call>";
const MAX_CALLS = 64;

/** A function that may be called; `parameters` is its JSON schema. */
interface CallableTool {
  readonly name: string;
  readonly parameters: unknown;
}

/** What is called, and what the text before it must be. */
interface ToolCallOptions {
  readonly isRequired: boolean;
  readonly isParallel: boolean;
  /** A JSON schema of the answer that is given in place of calls; undefined for free text. */
  readonly answer: unknown;
}

/** A schema of one of several tools that cannot be compiled. */
export class ToolFault extends Error {
  readonly tool: string;
  readonly fault: SchemaFault;

  constructor(tool: string, fault: SchemaFault) {
    super(fault.message);
    this.tool = tool;
    this.fault = fault;
  }
}

/** The grammar of a text that may or must call tools. Throws a ToolFault, or a SchemaFault of the answer's. */
export function compileTools(
  tools: readonly CallableTool[],
  { isRequired, isParallel, answer }: ToolCallOptions,
): GrammarProgram {
  const builder = new GrammarBuilder();
  const texts = new JsonTexts(builder);
  const options = tools.map(({ name, parameters }) =>
    builder.sequence([
      texts.literal(`${name}${ARGUMENTS}`),
      argumentsOf(builder, name, parameters),
    ]),
  );
  const call = builder.sequence([
    texts.literal(CALL_OPEN),
    builder.choice(options),
    texts.literal(CALL_CLOSE),
  ]);
  const more = builder.sequence([texts.literal("\n"), call]);
  const calls = isParallel
    ? builder.sequence([call, builder.repeat(more, 0, MAX_CALLS - 1)])
    : call;
  if (isRequired) return builder.build(calls);
  if (answer !== undefined) {
    return builder.build(builder.choice([new SchemaGrammar(builder, answer).root(), calls]));
  }
  return builder.build(builder.sequence([freeText(builder), builder.optional(calls)]));
}

function argumentsOf(builder: GrammarBuilder, name: string, parameters: unknown): number {
  try {
    return new SchemaGrammar(builder, closed(parameters)).objectRoot();
  } catch (error) {
    throw error instanceof SchemaFault ? new ToolFault(name, error) : error;
  }
}

/** A function whose parameters are declared and none has no arguments. */
function closed(parameters: unknown): unknown {
  const { properties, additionalProperties } = Object(parameters) as Record<string, unknown>;
  const isEmpty = properties !== undefined && Object.keys(Object(properties)).length === 0;
  if (!isEmpty || additionalProperties !== undefined) return parameters;
  return { ...Object(parameters), additionalProperties: false };
}

/** Any text in which no call begins. */
function freeText(builder: GrammarBuilder): number {
  return builder.text(toBytes(lacking(MARK), "plain"));
}
