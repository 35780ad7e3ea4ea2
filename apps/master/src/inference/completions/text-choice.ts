import { StringDecoder } from "node:string_decoder";
import type { FinishReason, TokenLogprob } from "@heddle/contracts/engine";

/** The scores of tokens as completions have them. */
interface TextScores {
  readonly tokens: string[];
  /** Null where a token has no score: the first of a prompt. */
  readonly token_logprobs: (number | null)[];
  readonly top_logprobs: (Record<string, number> | null)[] | null;
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
  /** Counts the characters that the tokens so far have completed. */
  readonly #decoder = new StringDecoder("utf8");
  #offset = 0;
  #scored = 0;
  #sum = 0;

  constructor(index: number, alternatives: number | undefined) {
    this.#index = index;
    this.#alternatives = alternatives;
  }

  /** The mean log-probability of the answer's tokens; least of all for an answer without any. */
  get likelihood(): number {
    return this.#scored === 0 ? Number.NEGATIVE_INFINITY : this.#sum / this.#scored;
  }

  /** A part of the prompt, before the answer. */
  prompt(text: string, logprobs?: readonly TokenLogprob[]): TextPart {
    return this.#part(text, logprobs && this.#scores(logprobs));
  }

  delta(text: string, logprobs: readonly TokenLogprob[] = []): TextPart {
    for (const { logprob } of logprobs) this.#sum += logprob;
    this.#scored += logprobs.length;
    return this.#part(text, this.#alternatives === undefined ? undefined : this.#scores(logprobs));
  }

  finish(reason: FinishReason): TextPart {
    return { ...this.#part("", undefined), finish_reason: reason };
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

  #part(text: string, logprobs: TextScores | undefined): TextPart {
    return { index: this.#index, text, logprobs: logprobs ?? null, finish_reason: null };
  }

  #scores(logprobs: readonly TokenLogprob[]): TextScores {
    // As in OpenAI's API, the token itself is there too, also where others are likelier.
    const tops = logprobs.map((own) =>
      Number.isNaN(own.logprob)
        ? null
        : Object.fromEntries([...own.top, own].map(({ token, logprob }) => [token, logprob])),
    );
    return {
      tokens: logprobs.map(({ token }) => token),
      token_logprobs: logprobs.map(({ logprob }) => (Number.isNaN(logprob) ? null : logprob)),
      top_logprobs: this.#alternatives ? tops : null,
      text_offset: logprobs.map(({ bytes }) => {
        const at = this.#offset;
        this.#offset += this.#decoder.write(Buffer.from(bytes)).length;
        return at;
      }),
    };
  }
}
