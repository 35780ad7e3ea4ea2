import type {
  EngineEvent,
  FinishReason,
  GenerateRequest,
  SubmitOptions,
  Usage,
} from "@heddle/contracts/engine";
import type { AnswerStyle } from "../../grammar/answer-grammar.ts";
import { callMarks, HERMES } from "../../text/call-form.ts";
import { CallReader } from "../../text/call-reader.ts";
import { HarmonyReader } from "../../text/calls/harmony-reader.ts";
import { REASONING_TAGS } from "../../text/reasoning-style.ts";
import { StopScanner } from "../../text/stop-scanner.ts";
import {
  ENDED_CUT,
  ENDED_LENGTH,
  ENDED_STOP,
  ENDS_GENERATION,
  GOES_ON,
  GOES_ON_CUT,
  goesOn,
} from "../protocol/thread-messages.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { TokenPieces } from "../tokenizing/token-pieces.ts";
import { ChoiceText, type TextDelta } from "./choice-text.ts";
import { LiveWork } from "./live-work.ts";
import { PromptEcho } from "./prompt-echo.ts";

/** How the tokens of an answer become its text. */
export interface RequestTexts {
  readonly pieces: TokenPieces;
  readonly style: AnswerStyle;
  /** Whether the library puts a space before a text. */
  readonly isSpaceAdded: boolean;
}

/** What the engine thread has sampled for a choice. */
interface SampledToken {
  readonly choice: number;
  readonly token: number;
  readonly end: number;
  readonly row: RowLogprobs | undefined;
}

/** A request for text: each choice is a sequence, with its text so far. */
export class LiveRequest extends LiveWork {
  readonly request: GenerateRequest;
  #completionTokens = 0;
  #texts: (ChoiceText | undefined)[];
  #readers: readonly (CallReader | HarmonyReader)[] = [];
  /** What the prompt's end means for how each choice is to be read, before its first text. */
  readonly #firstTexts: string[] = [];
  readonly #given: RequestTexts;
  #echo: PromptEcho | undefined;
  /**
   * Tokens of choices that found the prompt in the cache, while its scores are computed for the
   * first.
   */
  #held: SampledToken[] = [];
  /** Characters of the text of each continued choice that were sent before. */
  readonly #skipped: number[] = [];
  /** What the continued choices have beyond what was sent. */
  readonly #repeated: EngineEvent[] = [];
  /** Choices that their limit makes end. */
  readonly #cut = new Set<number>();
  #openChoices: number;

  constructor(id: number, request: GenerateRequest, options: SubmitOptions, given: RequestTexts) {
    super(id, request.choices, options);
    const { pieces, style } = given;
    const { stop, minTokens = 0, toolUse } = request;
    const stops = toolUse?.choice === "required" ? [] : stop;
    const marks = toolUse ? callMarks(style.form, toolUse.names) : [];
    this.#given = given;
    this.request = request;
    this.#openChoices = request.choices;
    this.#texts = Array.from(
      { length: request.choices },
      () => new ChoiceText(pieces, new StopScanner(stops, marks), minTokens),
    );
  }

  get usage(): Usage {
    return {
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      completionTokens: this.#completionTokens,
      reasoningTokens: 0,
    };
  }

  get isDone(): boolean {
    return this.#openChoices === 0;
  }

  isOpen(choice: number): boolean {
    return this.#texts[choice] !== undefined;
  }

  /** The prompt's tokens are known, and whether they open the reasoning. */
  read(prompt: Int32Array, isOpen: boolean): void {
    const { toolUse, choices, echo } = this.request;
    const { style } = this.#given;
    const reasoning = style.reasoning && (isOpen ? "open" : "tagged");
    const { family } = style.form;
    if (family === "harmony" && this.request.input.kind === "chat") {
      this.#readers = Array.from({ length: choices }, () => new HarmonyReader());
    } else if (toolUse !== undefined && family !== HERMES.family) {
      const tools = callableTools(this.request);
      const reader = () => new CallReader(style.form, reasoning, tools);
      this.#readers = Array.from({ length: choices }, reader);
    }
    if (reasoning !== style.reasoning) {
      this.#firstTexts.push(...new Array<string>(choices).fill(REASONING_TAGS[isOpen ? 0 : 1]));
    }
    if (echo) this.#echo = new PromptEcho(this.id, this.request, prompt, this.#given);
  }

  /**
   * Brings the choices of a continued answer to where their engine was lost, after `read`. A choice of
   * `maxTokens` ends, as does one whose last token or stop string was sent.
   */
  repeat(maxTokens: number): void {
    for (const [choice, sent] of this.request.sent?.entries() ?? []) {
      const { tokens, characters, isFinished, isCut } = sent;
      if (isFinished) {
        this.#completionTokens += tokens.length;
        this.#texts[choice] = undefined;
        this.#openChoices--;
        continue;
      }
      this.#skipped[choice] = characters;
      if (isCut) this.#cut.add(choice);
      for (const [at, token] of tokens.entries()) this.#repeat(choice, token, at + 1 === maxTokens);
    }
  }

  #repeat(choice: number, token: number, isLast: boolean): void {
    const text = this.#texts[choice];
    if (text === undefined) return;
    this.#completionTokens++;
    const isStop = (this.#given.pieces.flags(token) & ENDS_GENERATION) !== 0;
    if (!isStop) this.#delta(choice, text.repeat(token), this.#repeated);
    const end = isLast ? ENDED_LENGTH : GOES_ON;
    const ended = this.#cut.has(choice) ? ENDED_CUT : ENDED_STOP;
    this.#endAfter(choice, text, isStop ? ended : end, undefined, this.#repeated);
  }

  override start(cachedTokens: number, queuedMs: number): EngineEvent[] {
    const started = super.start(cachedTokens, queuedMs);
    const before = this.#echo === undefined ? started : [...started, this.#echo.begin()];
    return [...before, ...this.#repeated];
  }

  /** The scores of the prompt's next tokens. */
  scores(rows: readonly RowLogprobs[]): EngineEvent[] {
    return this.#echo === undefined ? [] : [this.#echo.scores(rows)];
  }

  /** The tokens that waited for the prompt's last scores, which come before them. */
  released(): readonly SampledToken[] {
    if (this.#held.length === 0 || this.#echo?.isPending) return [];
    const held = this.#held;
    this.#held = [];
    return held;
  }

  /**
   * Takes a sampled token and appends its events. True where a stop string ended the choice: the
   * engine thread does not know that yet.
   */
  token(
    choice: number,
    token: number,
    end: number,
    row: RowLogprobs | undefined,
    events: EngineEvent[],
  ): boolean {
    if (this.#echo?.isPending) {
      this.#held.push({ choice, token, end, row });
      return false;
    }
    const text = this.#texts[choice];
    if (text === undefined) return false;
    if (this.request.maxTokens === 0) {
      this.#close(choice, { reason: "length" }, events);
      return false;
    }
    this.#completionTokens++;
    if (end === GOES_ON_CUT || end === ENDED_CUT) this.#cut.add(choice);
    const hasText = end !== ENDED_STOP && end !== ENDED_CUT;
    if (hasText) this.#delta(choice, text.push(token, row), events);
    return this.#endAfter(choice, text, end, hasText ? undefined : token, events);
  }

  /** Ends the choice where its latest token says so; `last` is that token where it has no text. */
  #endAfter(
    choice: number,
    text: ChoiceText,
    end: number,
    last: number | undefined,
    events: EngineEvent[],
  ): boolean {
    const stopped = text.stopped;
    if (!stopped && goesOn(end)) return false;
    this.#finish(choice, text.finish(last), events);
    const reason = stopped || text.stopped || end === ENDED_STOP ? "stop" : "length";
    this.#close(choice, { reason, ...(text.stop !== undefined && { stop: text.stop }) }, events);
    return stopped && end !== ENDED_LENGTH;
  }

  #close(
    choice: number,
    end: { readonly reason: FinishReason; readonly stop?: string },
    events: EngineEvent[],
  ): void {
    events.push({ type: "finish", id: this.id, choice, ...end });
    this.#texts[choice] = undefined;
    this.#openChoices--;
  }

  #finish(choice: number, delta: TextDelta | undefined, events: EngineEvent[]): void {
    this.#delta(choice, delta, events);
    const text = this.#unsent(choice, this.#readers[choice]?.finish() ?? "");
    if (text !== "") events.push({ type: "delta", id: this.id, choice, text, tokens: 0 });
  }

  #delta(choice: number, delta: TextDelta | undefined, events: EngineEvent[]): void {
    if (delta === undefined) return;
    const { tokenIds, logprobs } = delta;
    const tokens = tokenIds.length;
    const read = this.#readers[choice]?.push(delta.text) ?? delta.text;
    const text = this.#unsent(choice, `${this.#firstTexts[choice] ?? ""}${read}`);
    if (this.#firstTexts.length > 0) this.#firstTexts[choice] = "";
    if (text === "" && tokens === 0) return;
    const plain = { type: "delta", id: this.id, choice, text, tokens } as const;
    const isCut = this.#cut.has(choice);
    const counted = tokens > 0 ? { ...plain, tokenIds, ...(isCut && { isCut }) } : plain;
    events.push(logprobs === undefined ? counted : { ...counted, logprobs });
  }

  /** The text without what was sent before. */
  #unsent(choice: number, text: string): string {
    const skipped = this.#skipped[choice] ?? 0;
    if (skipped === 0) return text;
    this.#skipped[choice] = Math.max(0, skipped - text.length);
    return text.slice(skipped);
  }
}

/** The tools of the input that may be called, with their places in the request. */
export function callableTools({ input, toolUse }: GenerateRequest) {
  const defined = input.kind === "chat" ? (input.tools ?? []) : [];
  return defined
    .map((tool, at) => ({ ...tool, at }))
    .filter(({ name }) => toolUse?.names.includes(name));
}
