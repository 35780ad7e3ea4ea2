import type { EngineEvent, EngineRequest, GenerateRequest } from "@heddle/contracts/engine";

/** Tokens that are remembered of one answer, over all choices: a longer one cannot be continued. */
const MAX_TOKENS = 262_144;

interface Choice {
  readonly tokens: number[];
  characters: number;
  isFinished: boolean;
  isCut: boolean;
}

/** What was received of an answer, so that another replica can continue it. */
export class AnswerRecord {
  readonly #request: EngineRequest;
  readonly #choices: readonly Choice[];
  /** Events of which there is one: repeated ones are left out. */
  readonly #once = new Set<string>();
  #tokens = 0;
  #hasText = false;
  /** Whether the ids of all tokens are known. */
  #isComplete = true;

  constructor(request: EngineRequest) {
    this.#request = request;
    const count = request.kind === undefined ? request.choices : 0;
    this.#choices = Array.from({ length: count }, () => {
      return { tokens: [], characters: 0, isFinished: false, isCut: false };
    });
  }

  /** Takes the next event; false if it is a repeated one. */
  take(event: EngineEvent): boolean {
    if (event.type === "delta") this.#delta(event);
    else if (event.type === "finish") {
      this.#hasText = true;
      const choice = this.#choices[event.choice];
      if (choice) choice.isFinished = true;
    } else {
      const name = event.type === "embedding" ? `embedding ${event.input}` : event.type;
      if (this.#once.has(name) && event.type !== "prompt") return false;
      this.#once.add(name);
    }
    return true;
  }

  #delta(event: EngineEvent & { type: "delta" }): void {
    const { choice: index, text, tokens, tokenIds = [], isCut = false } = event;
    this.#hasText = true;
    const choice = this.#choices[index];
    this.#tokens += tokens;
    const isKnown = tokenIds.length === tokens && (tokens > 0 || choice?.tokens.length !== 0);
    if (!choice || !isKnown || this.#tokens > MAX_TOKENS) this.#isComplete = false;
    if (!choice || !this.#isComplete) return;
    for (const tokenId of tokenIds) choice.tokens.push(tokenId);
    choice.characters += text.length;
    choice.isCut ||= isCut;
  }

  /** What another replica is asked for; undefined where it could not follow on. */
  get rest(): EngineRequest | undefined {
    const request = this.#request;
    if (request.kind !== undefined) return request;
    const { echo, topLogprobs } = request;
    const hasPrompt = this.#once.has("prompt");
    if (this.#hasText) {
      if (!this.#isComplete) return undefined;
      const sent = this.#choices.map((choice) => ({ ...choice, tokens: [...choice.tokens] }));
      return { ...request, echo: false, sent };
    }
    // The scores of a prompt come in parts.
    if (hasPrompt && topLogprobs !== undefined) return undefined;
    return { ...request, echo: echo && !hasPrompt } satisfies GenerateRequest;
  }
}
