import type { ReasoningStyle } from "@heddle/contracts/engine";
import type { CallForm, FormPart } from "../text/call-form.ts";
import { rawParameters } from "../text/calls/raw-parameters.ts";
import { JsonTexts } from "./json-texts.ts";
import { exactBytes, markedBytes } from "./marked-bytes.ts";
import { GrammarBuilder, type GrammarProgram } from "./program.ts";
import {
  both,
  lacking,
  literalPattern,
  notBeginning,
  type TextSet,
  toBytes,
} from "./regular-text.ts";
import { SchemaFault } from "./schema-fault.ts";
import { compileSchema, SchemaGrammar } from "./schema-grammar.ts";

const MAX_CALLS = 64;
/** Messages of reasoning before an answer. */
const MAX_EARLIER_MESSAGES = 8;
const HARMONY_MARKS = "<\\|(?:channel|message|start|end|return|call|constrain)\\|>";
const THINK = "<think>";
const THOUGHT = "</think>";
/** White space around reasoning. */
const BLANK = "[ \\n]{0,8}";

/** A function that may be called; `parameters` is its JSON schema. */
interface CallableTool {
  readonly name: string;
  readonly parameters: unknown;
}

/** What an answer may or must be. */
interface AnswerSource {
  readonly tools: readonly CallableTool[];
  readonly isRequired: boolean;
  readonly isParallel: boolean;
  /** A JSON schema of the answer that is given in place of calls; undefined for free text. */
  readonly answer: unknown;
}

/** How the model writes. */
export interface AnswerStyle {
  readonly form: CallForm;
  /** Reasoning is free, whatever the answer behind it must be. */
  readonly reasoning: ReasoningStyle | undefined;
  /** Texts that the vocabulary has as control tokens. */
  readonly marks: readonly string[];
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

/** The grammar of an answer. Throws a ToolFault, or a SchemaFault of the answer's schema. */
export function compileAnswer(source: AnswerSource, style: AnswerStyle): GrammarProgram {
  if (source.tools.length === 0 && style.reasoning === undefined) {
    return compileSchema(source.answer);
  }
  const builder = new GrammarBuilder();
  return builder.build(new AnswerGrammar(builder, style).root(source));
}

class AnswerGrammar {
  readonly #builder: GrammarBuilder;
  readonly #texts: JsonTexts;
  readonly #style: AnswerStyle;

  constructor(builder: GrammarBuilder, style: AnswerStyle) {
    this.#builder = builder;
    this.#texts = new JsonTexts(builder);
    this.#style = style;
  }

  root(source: AnswerSource): number {
    const { reasoning, form } = this.#style;
    if (form.family === "harmony") return this.#harmony(source);
    const answer = this.#answer(source);
    if (reasoning === undefined) return answer;
    const blank = this.#texts.common(BLANK);
    const free = this.#builder.text(toBytes(lacking(literalPattern(THOUGHT)), "plain"));
    const thought = [free, this.#written(THOUGHT), blank, answer];
    if (reasoning === "open") return this.#builder.sequence(thought);
    const begun = this.#builder.sequence([blank, this.#written(THINK), ...thought]);
    return this.#builder.choice([begun, answer]);
  }

  #answer({ tools, isRequired, isParallel, answer }: AnswerSource): number {
    if (tools.length === 0) return this.#ofSchema(answer);
    const { form } = this.#style;
    const bodies = this.#bodies(tools, isParallel);
    const calls = this.#builder.sequence([...form.open.map((part) => this.#part(part)), bodies]);
    if (isRequired) return calls;
    if (answer !== undefined) return this.#builder.choice([this.#ofSchema(answer), calls]);
    const names = tools.map(({ name }) => name);
    const marked = form.isBare ? this.#builder.sequence([this.#written(form.mark), bodies]) : calls;
    const free = this.#builder.sequence([this.#freeText(names), this.#builder.optional(marked)]);
    if (!form.isBare) return free;
    return this.#builder.choice([free, this.#builder.sequence([this.#texts.common(BLANK), calls])]);
  }

  /** Reasoning in messages of its own, then the answer's, or a call: the form has one in a turn. */
  #harmony({ tools, isRequired, answer }: AnswerSource): number {
    const free = this.#builder.text(toBytes(lacking(HARMONY_MARKS), "plain"));
    const again = this.#written("<|end|><|start|>assistant");
    const before = ["analysis", "commentary"].map((channel) =>
      this.#builder.sequence([this.#written(`<|channel|>${channel}<|message|>`), free, again]),
    );
    const head = this.#written("<|channel|>final<|message|>");
    const final = this.#builder.sequence([
      head,
      answer === undefined ? free : this.#ofSchema(answer),
    ]);
    const calls = tools.map(({ name, parameters }) => {
      const order = this.#builder.choice([
        this.#written(`<|channel|>commentary to=functions.${name} <|constrain|>json<|message|>`),
        this.#written(` to=functions.${name}<|channel|>commentary <|constrain|>json<|message|>`),
        this.#written(` to=functions.${name}<|channel|>commentary json<|message|>`),
      ]);
      return this.#builder.sequence([order, this.#argumentsOf(name, parameters)]);
    });
    const last = tools.length > 0 && isRequired ? calls : [final, ...calls];
    const earlier = this.#builder.repeat(this.#builder.choice(before), 0, MAX_EARLIER_MESSAGES);
    return this.#builder.sequence([earlier, this.#builder.choice(last)]);
  }

  #ofSchema(answer: unknown): number {
    return new SchemaGrammar(this.#builder, answer).root();
  }

  #bodies(tools: readonly CallableTool[], isParallel: boolean): number {
    const { form } = this.#style;
    const middle = form.middle.map((part) => this.#part(part));
    const options = tools.map(({ name, parameters }) =>
      this.#builder.sequence([
        this.#texts.literal(name),
        ...middle,
        form.isTagged
          ? this.#taggedArguments(name, parameters)
          : this.#argumentsOf(name, parameters),
      ]),
    );
    const call = this.#builder.sequence([
      this.#written(form.before),
      this.#builder.choice(options),
      ...form.after.map((part) => this.#part(part)),
    ]);
    const close = this.#written(form.close);
    if (!isParallel) return this.#builder.sequence([call, close]);
    const more = this.#builder.sequence([this.#written(form.between), call]);
    return this.#builder.sequence([call, this.#builder.repeat(more, 0, MAX_CALLS - 1), close]);
  }

  #argumentsOf(name: string, parameters: unknown): number {
    try {
      return new SchemaGrammar(this.#builder, closed(parameters)).objectRoot();
    } catch (error) {
      throw error instanceof SchemaFault ? new ToolFault(name, error) : error;
    }
  }

  #taggedArguments(name: string, parameters: unknown): number {
    try {
      const raw = rawParameters(parameters);
      return new SchemaGrammar(this.#builder, closed(parameters)).taggedRoot(raw);
    } catch (error) {
      throw error instanceof SchemaFault ? new ToolFault(name, error) : error;
    }
  }

  /** Any text in which no call begins. */
  #freeText(names: readonly string[]): number {
    const { mark, before, isBare } = this.#style.form;
    let texts: TextSet = lacking(literalPattern(mark));
    if (isBare) {
      const any = names.map(literalPattern).join("|");
      texts = both(texts, notBeginning(`\\s*${literalPattern(before)}(?:${any})"`));
    }
    return this.#builder.text(toBytes(texts, "plain"));
  }

  #part(part: FormPart): number {
    if (typeof part === "string") return this.#written(part);
    if ("pattern" in part) return this.#texts.common(part.pattern);
    return this.#builder.choice(
      part.anyOf.map((parts) => this.#builder.sequence(parts.map((each) => this.#part(each)))),
    );
  }

  /** A text, of which those that are control tokens are drawn as such. */
  #written(text: string): number {
    if (text === "") return this.#builder.empty();
    const mark = this.#style.marks.find((each) => text.includes(each));
    if (mark === undefined) return this.#texts.literal(text);
    const at = text.indexOf(mark);
    return this.#builder.sequence([
      this.#written(text.slice(0, at)),
      this.#builder.text(exactBytes(markedBytes(Buffer.from(mark)))),
      this.#written(text.slice(at + mark.length)),
    ]);
  }
}

/** A function whose parameters are declared and none has no arguments. */
function closed(parameters: unknown): unknown {
  const { properties, additionalProperties } = Object(parameters) as Record<string, unknown>;
  const isEmpty = properties !== undefined && Object.keys(Object(properties)).length === 0;
  if (!isEmpty || additionalProperties !== undefined) return parameters;
  return { ...Object(parameters), additionalProperties: false };
}
