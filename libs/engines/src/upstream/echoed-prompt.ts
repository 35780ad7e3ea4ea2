import type { PlainInput, TokenLogprob } from "@heddle/contracts/engine";
import { garbage } from "./upstream-fault.ts";

/** A part of a text, and the scores of its tokens. */
export interface ScoredText {
  readonly text: string;
  readonly logprobs: readonly TokenLogprob[];
}

/** The parts of one piece of a choice: what is new of the prompt, and the answer. */
interface DividedPiece {
  readonly prompt: ScoredText;
  readonly answer: ScoredText;
}

/** Further data of a piece. */
interface PieceHints {
  /** Tokens of the prompt, where the upstream says so with each piece. */
  readonly promptTokens: number | undefined;
  /** Where each token begins in the choice's text. */
  readonly offsets: readonly number[];
}

interface Position {
  readonly length: number;
  readonly tokens: number;
}

const START: Position = { length: 0, tokens: 0 };

/** The prompt that each choice of an upstream's answer repeats before its own text. */
export class EchoedPrompt {
  readonly #input: PlainInput;
  /** What each choice has repeated. */
  readonly #repeated: Position[];
  /** What was given of the prompt: as much as the choice that is ahead of the others. */
  #given = START;

  constructor(input: PlainInput, choices: number) {
    this.#input = input;
    this.#repeated = Array.from({ length: choices }, () => START);
  }

  isAtStart(choice: number): boolean {
    return this.#repeated[choice]?.tokens === 0;
  }

  divide(choice: number, { text, logprobs }: ScoredText, hints: PieceHints): DividedPiece {
    const before = this.#repeated[choice] ?? START;
    const tokens = this.#tokensIn(logprobs, before.tokens, hints);
    const length = this.#lengthIn(text, before.length, logprobs, tokens);
    const after = { length: before.length + length, tokens: before.tokens + tokens };
    const given = this.#given;
    const skipped = Math.max(0, given.tokens - before.tokens);
    const scores = logprobs.slice(skipped, tokens);
    const prompt = {
      text: text.slice(Math.max(0, given.length - before.length), length),
      logprobs: before.tokens + skipped === 0 ? this.#asSent(scores) : scores,
    };
    this.#repeated[choice] = after;
    this.#given = {
      length: Math.max(given.length, after.length),
      tokens: Math.max(given.tokens, after.tokens),
    };
    return { prompt, answer: { text: text.slice(length), logprobs: logprobs.slice(tokens) } };
  }

  /** Throws where a choice ends without the whole prompt. */
  end(choice: number): void {
    const { length, tokens } = this.#repeated[choice] ?? START;
    const input = this.#input;
    const isWhole =
      input.kind === "text"
        ? length === input.text.length && tokens > 0
        : tokens === input.tokens.length;
    if (!isWhole) throw garbage("an answer without the prompt that was asked for");
  }

  /** How many tokens of the piece are the prompt's. */
  #tokensIn(
    logprobs: readonly TokenLogprob[],
    before: number,
    { promptTokens, offsets }: PieceHints,
  ): number {
    const input = this.#input;
    const all = input.kind === "tokens" ? input.tokens.length : promptTokens;
    if (all !== undefined) return Math.min(logprobs.length, Math.max(0, all - before));
    const { length } = (input as PlainInput & { readonly kind: "text" }).text;
    return Math.min(logprobs.length, offsets.filter((offset) => offset < length).length);
  }

  /** How much of the piece's text is the prompt's. */
  #lengthIn(
    text: string,
    before: number,
    logprobs: readonly TokenLogprob[],
    tokens: number,
  ): number {
    if (this.#input.kind === "text") {
      const wanted = this.#input.text.slice(before, before + text.length);
      if (!text.startsWith(wanted)) throw garbage("another text than the prompt in its place");
      return wanted.length;
    }
    // The prompt's first token has no score: no token precedes it.
    const first = before === 0 && tokens > 0 ? logprobs[0]?.logprob : Number.NaN;
    if (!Number.isNaN(first)) throw garbage("an answer in place of its prompt");
    if (tokens === 0) return 0;
    const answer = logprobs.slice(tokens).map(({ token }) => token);
    const end = answer.join("");
    return text.endsWith(end) ? text.length - end.length : text.length;
  }

  /** The prompt's first scores, without a begin token that the upstream put before a text. */
  #asSent(scores: readonly TokenLogprob[]): readonly TokenLogprob[] {
    const [first, ...others] = scores;
    if (this.#input.kind === "tokens" || !first || !Number.isNaN(first.logprob)) return scores;
    return this.#input.text.startsWith(first.token.trimStart()) ? scores : others;
  }
}
