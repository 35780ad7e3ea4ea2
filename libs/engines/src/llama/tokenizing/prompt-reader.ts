import { AppError } from "@heddle/base/errors";
import type { EngineInput, InputReading, PairInput, ReadRequest } from "@heddle/contracts/engine";
import { ChatTemplate } from "../../text/chat-template.ts";
import { PromptGuard, type PromptPart } from "../../text/prompt-guard.ts";
import type { Llama } from "../native/bindings.ts";
import type { VocabularyTable } from "../protocol/thread-messages.ts";
import { PromptBound } from "./prompt-bound.ts";
import { Tokenizer } from "./tokenizer.ts";
import { parsedTokens } from "./vocabulary.ts";

/** The error for a too long prompt has its exact token count up to this many contexts. */
const COUNTED_CONTEXTS = 2;

/** What prompts are read with; it can be sent to another thread of the process. */
export interface PromptRules {
  readonly table: VocabularyTable;
  /** The jinja source. */
  readonly chatTemplate: string;
  readonly contextTokens: number;
}

/** An answer needs room after its prompt; an input to embed may fill the context. */
export type PromptUse = "generate" | "embed";

/** The longest text of tokens that is given, in characters. */
const MAX_SPELLED_CHARS = 4 * 2 ** 20;

/** From what a request says to the tokens of its prompt, in the thread that asks. */
export class PromptReader {
  readonly #rules: PromptRules;
  readonly #tokenizer: Tokenizer;
  readonly #template: ChatTemplate;
  readonly #guard: PromptGuard;
  readonly #bound: PromptBound;

  /** Throws `invalid_value` where the template is no jinja. */
  constructor(llama: Llama, rules: PromptRules) {
    const { table, chatTemplate } = rules;
    this.#rules = rules;
    this.#tokenizer = new Tokenizer(llama, table);
    this.#template = new ChatTemplate(chatTemplate, table);
    this.#guard = new PromptGuard(parsedTokens(table));
    this.#bound = new PromptBound(table);
  }

  /**
   * At least one token, and so few that the context leaves room for an answer. Throws
   * `context_length_exceeded` where they are more, `invalid_value` where the template refuses.
   */
  read(input: EngineInput | PairInput, use: PromptUse): Int32Array {
    const { tokens, isWhole } = this.#tokens(input, use);
    if (tokens.length === 0) {
      const message = "the prompt has no tokens; send some text";
      throw new AppError("invalid_value", message, { param: "input" });
    }
    const { contextTokens } = this.#rules;
    if (tokens.length > (use === "embed" ? contextTokens : contextTokens - 1)) {
      throw this.#tooLong(`${isWhole ? "" : "at least "}${tokens.length}`, input, use);
    }
    return tokens;
  }

  /** The jinja source. */
  get template(): string {
    return this.#rules.chatTemplate;
  }

  /** The tokens of a text within a prompt, in which control tokens are read. */
  within(text: string): Int32Array {
    const parts = this.#guard.apart(text);
    return this.#tokenizer.tokenizeParts(parts, Number.POSITIVE_INFINITY, true).tokens;
  }

  /** What the input is as tokens or text, however long. Throws `invalid_value` as `read` does. */
  tell({ input, give, isBare }: ReadRequest): InputReading {
    if (give === "text") return this.#text(input);
    const text = input.kind === "tokens" ? undefined : this.#textOf(input);
    const tokens =
      text === undefined
        ? Int32Array.from((input as { tokens: readonly number[] }).tokens)
        : this.#tokenized(text, this.#partsOf(text), Number.POSITIVE_INFINITY, isBare).tokens;
    const count = tokens.length;
    if (give === "count") return { count };
    return give === "tokens"
      ? { count, tokens }
      : { count, tokens, pieces: this.#tokenizer.pieces(tokens) };
  }

  #text(input: EngineInput): InputReading {
    if (input.kind !== "tokens") return { count: 0, text: this.#guard.shown(this.#textOf(input)) };
    const text = this.#tokenizer.spelled(input.tokens);
    if (text.length > MAX_SPELLED_CHARS) {
      const message = `the tokens spell ${text.length} characters, and at most ${MAX_SPELLED_CHARS} are given; send them in parts`;
      throw new AppError("invalid_value", message, { param: "tokens" });
    }
    return { count: input.tokens.length, text };
  }

  #tokens(input: EngineInput | PairInput, use: PromptUse): ReturnType<Tokenizer["tokenize"]> {
    if (input.kind === "tokens" && input.suffix === undefined) {
      return { tokens: Int32Array.from(input.tokens), isWhole: true };
    }
    const isPair = input.kind === "pair";
    const gap = this.#gapParts(input);
    const text = isPair || gap || input.kind === "tokens" ? "" : this.#textOf(input);
    const parts = isPair ? this.#pairParts(input) : (gap ?? this.#partsOf(text));
    // To tokenize megabytes takes seconds: what is too long in any case is refused before.
    const { contextTokens } = this.#rules;
    const least = this.#bound.exceeds(parts ?? [text], contextTokens);
    if (least !== undefined) throw this.#tooLong(`at least ${least}`, input, use);
    return this.#tokenized(text, parts, COUNTED_CONTEXTS * contextTokens, isPair);
  }

  /** What is before a gap and what follows it; undefined where there is no gap to fill. */
  #gapParts(input: EngineInput | PairInput): readonly PromptPart[] | undefined {
    if (input.kind === "chat" || input.kind === "pair") return undefined;
    if (input.suffix === undefined) return undefined;
    const { fill } = this.#rules.table;
    if (fill === undefined) {
      const message =
        "Unsupported value for 'suffix': this model's vocabulary has no tokens for filling in the middle. Leave it out, or choose a model that has them, as those for code.";
      throw new AppError("unsupported_parameter", message, { param: "suffix" });
    }
    const before = input.kind === "text" ? this.#guard.apart(input.text) : input.tokens;
    const after = this.#guard.apart(input.suffix);
    return [fill.prefix, ...before, fill.suffix, ...after, fill.middle];
  }

  /** Neither text can write a control token. */
  #pairParts({ query, document }: PairInput): readonly PromptPart[] {
    const { template, begin, between, end } = this.#rules.table.pair;
    if (template === "") return [...begin, query, ...between, document, ...end];
    const values = { "{query}": query, "{document}": document };
    const written = template.replace(/\{query\}|\{document\}/g, (name) =>
      this.#guard.quote(values[name as keyof typeof values]),
    );
    return this.#guard.apart(written);
  }

  /** A text taken apart at its control tokens, where it is not to be tokenized as it is. */
  #partsOf(text: string): readonly PromptPart[] | undefined {
    const isApart = this.#tokenizer.takesApart(text);
    return this.#guard.split(text) ?? (isApart ? this.#guard.apart(text) : undefined);
  }

  #tokenized(
    text: string,
    parts: readonly PromptPart[] | undefined,
    most: number,
    isBare?: boolean,
  ): ReturnType<Tokenizer["tokenize"]> {
    return parts === undefined
      ? this.#tokenizer.tokenize(text, isBare)
      : this.#tokenizer.tokenizeParts(parts, most, isBare);
  }

  #textOf(input: Exclude<EngineInput, { readonly kind: "tokens" }>): string {
    return input.kind === "text" ? input.text : this.#render(input);
  }

  #render({ messages, tools, effort }: EngineInput & { readonly kind: "chat" }): string {
    const quote = (text: string) => this.#guard.quote(text);
    return this.#template.render(messages, { addGenerationPrompt: true, quote, tools, effort });
  }

  #tooLong(tokens: string, { kind }: EngineInput | PairInput, use: PromptUse): AppError {
    const has =
      use === "embed"
        ? `input has ${tokens} tokens`
        : `prompt has ${tokens} tokens and leaves no room for an answer`;
    const message = `This model's maximum context length is ${this.#rules.contextTokens} tokens. However, your ${has}. Please shorten it.`;
    return new AppError("context_length_exceeded", message, {
      param: kind === "chat" ? "messages" : "prompt",
    });
  }
}
