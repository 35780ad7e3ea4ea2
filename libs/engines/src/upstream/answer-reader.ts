import { isJsonObject, type JsonObject } from "@heddle/base/json-object";
import type {
  EngineEvent,
  FinishReason,
  GenerateRequest,
  TokenLogprob,
  Usage,
} from "@heddle/contracts/engine";
import type { Dialect } from "./dialects.ts";
import { EchoedPrompt, type ScoredText } from "./echoed-prompt.ts";
import { textOffsets, tokenLogprobs } from "./logprobs.ts";
import { UpstreamChoice } from "./upstream-choice.ts";
import { garbage, streamedFault } from "./upstream-fault.ts";
import { optionalText, usageOf } from "./upstream-json.ts";

/** TGI has names of its own for an end token and for a stop text. */
const FINISH_REASONS: Readonly<Record<string, FinishReason>> = {
  stop: "stop",
  eos_token: "stop",
  stop_sequence: "stop",
  length: "length",
  tool_calls: "tool_calls",
  content_filter: "content_filter",
};

/**
 * Reads the stream of one answer: the data of its events become the events of the port. Throws an
 * UpstreamFault for what is no answer, or no whole one.
 */
export class AnswerReader {
  readonly #id: number;
  readonly #dialect: Dialect;
  readonly #apiKey: string | undefined;
  readonly #isChat: boolean;
  readonly #hasLogprobs: boolean;
  readonly #echo: EchoedPrompt | undefined;
  readonly #stops: readonly string[];
  readonly #choices: readonly UpstreamChoice[];
  #isStarted = false;
  #isDone = false;
  #usage: Usage | undefined;
  /** Choices with scores. */
  readonly #scored = new Set<number>();
  /** Output tokens of the deltas. */
  #counted = 0;

  constructor(id: number, request: GenerateRequest, dialect: Dialect, apiKey: string | undefined) {
    this.#id = id;
    this.#dialect = dialect;
    this.#apiKey = apiKey;
    this.#isChat = request.input.kind === "chat";
    this.#hasLogprobs = request.topLogprobs !== undefined;
    const { input, echo, choices } = request;
    this.#echo = echo && input.kind !== "chat" ? new EchoedPrompt(input, choices) : undefined;
    this.#stops = request.stop;
    this.#choices = Array.from(
      { length: request.choices },
      () => new UpstreamChoice(request.toolUse),
    );
  }

  /** Whether any part of the answer was received. */
  get isStarted(): boolean {
    return this.#isStarted;
  }

  push(data: string): EngineEvent[] {
    if (data === "[DONE]") {
      this.#isDone = true;
      return [];
    }
    if (this.#isDone) throw garbage("more after the end of its answer");
    const chunk = objectOf(data);
    if (chunk["error"] != null) throw streamedFault(chunk["error"], this.#apiKey);
    this.#takeUsage(usageOf(chunk["usage"]));
    const events = this.#isStarted ? [] : [this.#started()];
    const { choices = [] } = chunk as { choices?: unknown };
    if (!Array.isArray(choices)) throw garbage("choices that are not a list");
    for (const choice of choices) this.#takeChoice(choice, events);
    return events;
  }

  /** The last event, where the stream has ended as it should. */
  end(): EngineEvent & { readonly type: "done" } {
    const isWhole = this.#isDone && this.#choices.every(({ isFinished }) => isFinished);
    if (!isWhole) throw garbage("an answer that ends before its end");
    if (!this.#usage)
      throw garbage("an answer without its usage, which is what tokens are counted by");
    return { type: "done", id: this.#id, usage: this.#usage };
  }

  #takeUsage(usage: Usage | undefined): void {
    if (!usage) return;
    const before = this.#dialect.usage === "choice" ? this.#usage : undefined;
    const { completionTokens = 0, reasoningTokens = 0 } = before ?? {};
    this.#usage = {
      ...usage,
      completionTokens: usage.completionTokens + completionTokens,
      reasoningTokens: usage.reasoningTokens + reasoningTokens,
    };
  }

  #started(): EngineEvent {
    this.#isStarted = true;
    const { promptTokens = 0, cachedTokens = 0 } = this.#usage ?? {};
    return { type: "started", id: this.#id, promptTokens, cachedTokens, queuedMs: 0 };
  }

  #takeChoice(value: unknown, events: EngineEvent[]): void {
    if (!isJsonObject(value)) throw garbage("a choice that is not an object");
    const index = value["index"] ?? 0;
    const choice = this.#choices[index as number];
    if (!choice || choice.isFinished) throw garbage(`a choice ${index} that was not asked for`);
    const piece = this.#isChat
      ? { text: choice.delta(value["delta"]), logprobs: this.#scores(value) }
      : this.#plain(choice, value, index as number, events);
    if (piece.logprobs.length > 0) this.#scored.add(index as number);
    this.#addDelta(index as number, piece, events);
    const ended = value["finish_reason"];
    if (ended == null) return;
    const reason = FINISH_REASONS[String(ended)];
    if (reason === undefined) throw garbage(`the unknown end ${JSON.stringify(ended)} of a choice`);
    this.#addDelta(index as number, { text: choice.finish(reason), logprobs: [] }, events, 0);
    this.#echo?.end(index as number);
    if (this.#hasLogprobs && choice.hasContent && !this.#scored.has(index as number)) {
      throw garbage("an answer without the log-probabilities that were asked for");
    }
    const stop = this.#stops.find((text) => text === value["stop_reason"]);
    const end = { type: "finish", id: this.#id, choice: index as number, reason } as const;
    events.push(stop === undefined ? end : { ...end, stop });
  }

  #scores(value: JsonObject): TokenLogprob[] {
    return this.#hasLogprobs ? tokenLogprobs(value["logprobs"]) : [];
  }

  /** A piece of a text completion; the prompt that it repeats becomes an event of its own. */
  #plain(
    choice: UpstreamChoice,
    value: JsonObject,
    index: number,
    events: EngineEvent[],
  ): ScoredText {
    const text = optionalText(value["text"], "a piece of text");
    const echo = this.#echo;
    if (!echo) return { text: choice.plain(text), logprobs: this.#scores(value) };
    const logprobs = tokenLogprobs(value["logprobs"], echo.isAtStart(index));
    const isSoFar = this.#dialect.usage === "so far";
    const promptTokens = isSoFar ? this.#usage?.promptTokens : undefined;
    const offsets = textOffsets(value["logprobs"]);
    const { prompt, answer } = echo.divide(index, { text, logprobs }, { promptTokens, offsets });
    if (prompt.text !== "" || prompt.logprobs.length > 0) {
      events.push({ type: "prompt", id: this.#id, ...this.#shown(prompt) });
    }
    return { text: choice.plain(answer.text), logprobs: answer.logprobs };
  }

  #addDelta(
    choice: number,
    piece: ScoredText,
    events: EngineEvent[],
    tokens = this.#tokensOf(piece),
  ): void {
    if (piece.text === "" && piece.logprobs.length === 0) return;
    events.push({ type: "delta", id: this.#id, choice, tokens, ...this.#shown(piece) });
  }

  /** Scores go to those who asked for them. */
  #shown({ text, logprobs }: ScoredText): { text: string; logprobs?: readonly TokenLogprob[] } {
    return this.#hasLogprobs && logprobs.length > 0 ? { text, logprobs } : { text };
  }

  /** Never more than the usage will say: a piece of text is at least one token. */
  #tokensOf({ text, logprobs }: ScoredText): number {
    if (text === "" && logprobs.length === 0) return 0;
    const soFar = this.#dialect.usage === "so far" ? this.#usage?.completionTokens : undefined;
    const reported = soFar === undefined ? 1 : Math.max(0, soFar - this.#counted);
    const tokens = logprobs.length > 0 ? logprobs.length : reported;
    this.#counted += tokens;
    return tokens;
  }
}

function objectOf(data: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch (cause) {
    throw garbage(`text that is not JSON: ${JSON.stringify(data.slice(0, 60))} (${String(cause)})`);
  }
  if (!isJsonObject(value)) throw garbage("an event that is not a JSON object");
  return value;
}
