import type { EngineEvent, Usage } from "@heddle/contracts/engine";
import type { CallTokens } from "../accounting.ts";

/** What one part of a call has counted: a request to an engine. */
export class PartTally {
  readonly #sharesPrompt: boolean;
  #promptTokens = 0;
  #cachedTokens = 0;
  #completionTokens = 0;
  #reported: Usage | undefined;
  #reasoningTokens = 0;
  readonly #reasons: string[] = [];
  #begun = 0;
  #isPromptKnown = true;

  /** `sharesPrompt`: another part of the call counts the prompt. */
  constructor(sharesPrompt: boolean) {
    this.#sharesPrompt = sharesPrompt;
  }

  /** Requests that an engine has begun. */
  get begun(): number {
    return this.#begun;
  }

  /** Whether each engine has reported the prompt's tokens when it began; upstreams report them last. */
  get isPromptKnown(): boolean {
    return this.#isPromptKnown;
  }

  get isReported(): boolean {
    return this.#reported !== undefined;
  }

  get finishReasons(): readonly string[] {
    return this.#reasons;
  }

  /** The tokens seen so far. */
  get seen(): CallTokens {
    return {
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      completionTokens: this.#completionTokens,
    };
  }

  /** With tokens that were not streamed, as the end token; no less than what was seen. */
  get used(): CallTokens {
    return this.#reported ? largerTokens(this.seen, this.#reported) : this.seen;
  }

  /** The engine's count if it sent one, otherwise the tokens seen. */
  get usage(): Usage {
    const reported = this.#reported ?? { ...this.seen, reasoningTokens: 0 };
    // An upstream may count reasoning that it does not show.
    const reasoningTokens = Math.max(reported.reasoningTokens, this.#reasoningTokens);
    return { ...reported, reasoningTokens };
  }

  add(event: EngineEvent): void {
    if (event.type === "started") {
      this.#begun++;
      this.#isPromptKnown &&= event.promptTokens > 0;
      if (this.#sharesPrompt) return;
      this.#promptTokens += event.promptTokens;
      this.#cachedTokens += event.cachedTokens;
    } else if (event.type === "delta") this.#completionTokens += event.tokens;
    else if (event.type === "finish") this.#reasons.push(event.reason);
    else if (event.type === "done") this.#report(event.usage);
    else if (event.type === "failed" && event.error.usage) this.#report(event.error.usage);
  }

  reasoned(tokens: number): void {
    this.#reasoningTokens += tokens;
  }

  #report(usage: Usage): void {
    const own = this.#sharesPrompt ? { ...usage, promptTokens: 0, cachedTokens: 0 } : usage;
    this.#reported = this.#reported ? sumOfUsage([this.#reported, own]) : own;
  }
}

export function sumOfUsage(parts: readonly Usage[]): Usage {
  return {
    ...sumOfTokens(parts),
    reasoningTokens: parts.reduce((sum, part) => sum + part.reasoningTokens, 0),
  };
}

export function sumOfTokens(parts: readonly CallTokens[]): CallTokens {
  const sum = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
  for (const { promptTokens, cachedTokens, completionTokens } of parts) {
    sum.promptTokens += promptTokens;
    sum.cachedTokens += cachedTokens;
    sum.completionTokens += completionTokens;
  }
  return sum;
}

/** The larger one of each number. */
export function largerTokens(tokens: CallTokens, others: CallTokens): CallTokens {
  return {
    promptTokens: Math.max(tokens.promptTokens, others.promptTokens),
    cachedTokens: Math.max(tokens.cachedTokens, others.cachedTokens),
    completionTokens: Math.max(tokens.completionTokens, others.completionTokens),
  };
}
