import type { FinishReason, TokenLogprob } from "@heddle/contracts/engine";

/** The scores of tokens as completions have them. */
interface TextScores {
  readonly tokens: string[];
  readonly token_logprobs: number[];
  readonly top_logprobs: Record<string, number>[] | null;
  readonly text_offset: number[];
}

/** A part of a choice, as JSON has it. */
interface TextPart {
  readonly index: number;
  readonly text: string;
  readonly logprobs: TextScores | null;
  readonly finish_reason: FinishReason | null;
}

/** One choice of one prompt: the parts of its text, with where each token begins in the whole. */
export class TextChoice {
  readonly #index: number;
  /** Undefined without scores. */
  readonly #alternatives: number | undefined;
  #offset = 0;

  constructor(index: number, alternatives: number | undefined) {
    this.#index = index;
    this.#alternatives = alternatives;
  }

  /** The prompt, before the answer. */
  echo(text: string): TextPart {
    this.#offset = text.length;
    return { index: this.#index, text, logprobs: null, finish_reason: null };
  }

  delta(text: string, logprobs: readonly TokenLogprob[] = []): TextPart {
    const scores = this.#alternatives === undefined ? null : this.#scores(logprobs);
    return { index: this.#index, text, logprobs: scores, finish_reason: null };
  }

  finish(reason: FinishReason): TextPart {
    return { index: this.#index, text: "", logprobs: null, finish_reason: reason };
  }

  /** All parts as one. */
  joined(parts: readonly TextPart[]): TextPart {
    const scores = parts.flatMap(({ logprobs }) => (logprobs === null ? [] : [logprobs]));
    const joined: TextScores = {
      tokens: scores.flatMap(({ tokens }) => tokens),
      token_logprobs: scores.flatMap(({ token_logprobs }) => token_logprobs),
      top_logprobs: this.#alternatives ? scores.flatMap((each) => each.top_logprobs ?? []) : null,
      text_offset: scores.flatMap(({ text_offset }) => text_offset),
    };
    return {
      index: this.#index,
      text: parts.map(({ text }) => text).join(""),
      logprobs: this.#alternatives === undefined ? null : joined,
      finish_reason: parts.at(-1)?.finish_reason ?? "stop",
    };
  }

  #scores(logprobs: readonly TokenLogprob[]): TextScores {
    const tops = logprobs.map(({ top }) =>
      Object.fromEntries(top.map(({ token, logprob }) => [token, logprob])),
    );
    return {
      tokens: logprobs.map(({ token }) => token),
      token_logprobs: logprobs.map(({ logprob }) => logprob),
      top_logprobs: this.#alternatives ? tops : null,
      text_offset: logprobs.map(({ token }) => {
        const at = this.#offset;
        this.#offset += token.length;
        return at;
      }),
    };
  }
}
