import type { EngineEvent, GenerateRequest, SubmitOptions, Usage } from "@heddle/contracts/engine";
import { ENDED_LENGTH, ENDED_STOP } from "../protocol/thread-messages.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { TokenPieces } from "../tokenizing/token-pieces.ts";
import { ChoiceText, type TextDelta } from "./choice-text.ts";
import { LiveWork } from "./live-work.ts";

/** A request for text: each choice is a sequence, with its text so far. */
export class LiveRequest extends LiveWork {
  readonly request: GenerateRequest;
  #completionTokens = 0;
  #texts: (ChoiceText | undefined)[];
  #openChoices: number;

  constructor(id: number, request: GenerateRequest, options: SubmitOptions, pieces: TokenPieces) {
    super(id, request.choices, options);
    this.request = request;
    this.#openChoices = request.choices;
    this.#texts = Array.from(
      { length: request.choices },
      () => new ChoiceText(pieces, request.stop),
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

  protected isOpen(choice: number): boolean {
    return this.#texts[choice] !== undefined;
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
    const { stop } = text;
    const finish = { type: "finish", id: this.id, choice, reason } as const;
    events.push(stop === undefined ? finish : { ...finish, stop });
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
