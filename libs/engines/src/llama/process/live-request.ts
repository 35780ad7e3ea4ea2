import type { EngineEvent, GenerateRequest, SubmitOptions, Usage } from "@heddle/contracts/engine";
import { ENDED_LENGTH, ENDED_STOP } from "../protocol/thread-messages.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { TokenPieces } from "../tokenizing/token-pieces.ts";
import { ChoiceText, type TextDelta } from "./choice-text.ts";

/** A request between its submission and its last event, with the text of its choices. */
export class LiveRequest {
  readonly id: number;
  readonly request: GenerateRequest;
  readonly options: SubmitOptions;
  /** The first choice's handle in the engine thread; -1 until its prompt is tokenized. */
  firstHandle = -1;
  promptTokens = 0;
  started = false;
  deadline: NodeJS.Timeout | undefined;
  /** Takes a long prompt out of the line of those that are to be read. */
  stopReading: (() => void) | undefined;
  #cachedTokens = 0;
  #completionTokens = 0;
  #texts: (ChoiceText | undefined)[];
  #openChoices: number;

  constructor(id: number, request: GenerateRequest, options: SubmitOptions, pieces: TokenPieces) {
    this.id = id;
    this.request = request;
    this.options = options;
    this.#openChoices = request.choices;
    this.#texts = Array.from(
      { length: request.choices },
      () => new ChoiceText(pieces, request.stop),
    );
  }

  get usage(): Usage {
    return {
      promptTokens: this.promptTokens,
      cachedTokens: this.#cachedTokens,
      completionTokens: this.#completionTokens,
      reasoningTokens: 0,
    };
  }

  get isDone(): boolean {
    return this.#openChoices === 0;
  }

  /** The handles of choices that still get tokens. */
  get openHandles(): number[] {
    if (this.firstHandle < 0) return [];
    return this.#texts.flatMap((text, choice) =>
      text === undefined ? [] : [this.firstHandle + choice],
    );
  }

  start(cachedTokens: number, queuedMs: number): EngineEvent {
    this.started = true;
    this.#cachedTokens = cachedTokens;
    const { id, promptTokens } = this;
    return { type: "started", id, promptTokens, cachedTokens, queuedMs };
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
    const text = this.#texts[choice];
    if (text === undefined) return false;
    this.#completionTokens++;
    if (end !== ENDED_STOP) this.#delta(choice, text.push(token, row), events);
    const stopped = text.stopped;
    if (!stopped && end !== ENDED_STOP && end !== ENDED_LENGTH) return false;
    this.#delta(choice, text.finish(end === ENDED_STOP ? 1 : 0), events);
    const reason = stopped || text.stopped || end === ENDED_STOP ? "stop" : "length";
    events.push({ type: "finish", id: this.id, choice, reason });
    this.#texts[choice] = undefined;
    this.#openChoices--;
    return stopped && end !== ENDED_LENGTH;
  }

  #delta(choice: number, delta: TextDelta | undefined, events: EngineEvent[]): void {
    if (delta === undefined) return;
    const { text, tokens, logprobs } = delta;
    const plain = { type: "delta", id: this.id, choice, text, tokens } as const;
    events.push(logprobs === undefined ? plain : { ...plain, logprobs });
  }
}
