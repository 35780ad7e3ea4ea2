import type { TokenLogprob } from "@heddle/contracts/engine";
import type { StopScanner } from "../../text/stop-scanner.ts";
import { Utf8Stream } from "../../text/utf8-stream.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { TokenPieces } from "../tokenizing/token-pieces.ts";
import { isSilent } from "../tokenizing/vocabulary.ts";

/** What a token added to the answer. */
export interface TextDelta {
  readonly text: string;
  /** The tokens whose text was sent since the last delta. */
  readonly tokenIds: readonly number[];
  readonly logprobs: readonly TokenLogprob[] | undefined;
}

interface HeldToken {
  readonly token: number;
  readonly logprob: TokenLogprob | undefined;
  /** Where in the decoded text its characters begin. */
  readonly start: number;
}

/**
 * The text of one choice: tokens in, whole characters out, cut before the first stop string. Tokens
 * and log-probabilities of held-back text are held back with it; log-probabilities of tokens wholly
 * behind the cut are dropped.
 */
export class ChoiceText {
  readonly #pieces: TokenPieces;
  readonly #utf8 = new Utf8Stream();
  readonly #scanner: StopScanner;
  /** Tokens whose text no stop string cuts. */
  #uncut: number;
  #decoded = 0;
  #released = 0;
  #stopped = false;
  #held: HeldToken[] = [];

  /** Stop strings are searched in the text after the first `minTokens` tokens. */
  constructor(pieces: TokenPieces, scanner: StopScanner, minTokens: number) {
    this.#pieces = pieces;
    this.#scanner = scanner;
    this.#uncut = minTokens;
  }

  /** Whether a stop string was met; later tokens mean nothing. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** The stop string that was met. */
  get stop(): string | undefined {
    return this.#scanner.stop;
  }

  /** Adds a token that is part of the text; undefined where nothing can be let out yet. */
  push(token: number, row: RowLogprobs | undefined): TextDelta | undefined {
    const logprob = row && scoredToken(this.#pieces, token, row);
    this.#held.push({ token, logprob, start: this.#decoded });
    return this.#release(this.#read(token), false);
  }

  /** Adds a token that was let out before, in another engine: the delta is its text alone. */
  repeat(token: number): TextDelta {
    const text = this.#read(token);
    this.#released += text.length;
    return { text, tokenIds: [], logprobs: undefined };
  }

  /** The choice ended, with a token that has no text where one is given: lets out what was held back. */
  finish(end?: number): TextDelta | undefined {
    if (end !== undefined) {
      this.#held.push({ token: end, logprob: undefined, start: this.#decoded });
    }
    const tail = this.#scan(this.#utf8.flush());
    return this.#release(this.#stopped ? tail : tail + this.#scanner.flush(), true);
  }

  #read(token: number): string {
    const isUncut = this.#uncut > 0;
    if (isUncut) this.#uncut--;
    if (isSilent(this.#pieces.flags(token))) return "";
    const whole = this.#pieces.text(token);
    const text =
      whole === undefined
        ? this.#utf8.push(this.#pieces.bytes(token))
        : this.#utf8.pushWhole(whole);
    if (!isUncut) return this.#scan(text);
    this.#scanner.skip(text);
    this.#decoded += text.length;
    return text;
  }

  #scan(text: string): string {
    if (this.#stopped) return "";
    this.#decoded += text.length;
    const scanned = this.#scanner.push(text);
    this.#stopped = scanned.stopped;
    return scanned.text;
  }

  #release(text: string, final: boolean): TextDelta | undefined {
    this.#released += text.length;
    const isEnd = final || this.#stopped;
    const isScored = this.#held[0]?.logprob !== undefined;
    if (text === "" && !isScored && !isEnd) return undefined;
    const everything = this.#released === this.#decoded || (final && !this.#stopped);
    const isFree = ({ start }: HeldToken) => everything || start < this.#released;
    const freed = this.#held.filter(isFree);
    const left = this.#held.slice(freed.length);
    this.#held = isEnd ? [] : left;
    const counted = isEnd ? [...freed, ...left] : freed;
    if (text === "" && counted.length === 0) return undefined;
    const logprobs = freed.flatMap(({ logprob }) => logprob ?? []);
    return {
      text,
      tokenIds: counted.map(({ token }) => token),
      logprobs: logprobs.length > 0 ? logprobs : undefined,
    };
  }
}

/** A token with its scores; without a row it is the first of its sequence, which has none. */
export function scoredToken(
  pieces: TokenPieces,
  token: number,
  row: RowLogprobs | undefined,
): TokenLogprob {
  if (row === undefined) return { ...spell(pieces, token), logprob: Number.NaN, top: [] };
  const top = Array.from(row.topTokens, (id, i) => ({
    ...spell(pieces, id),
    logprob: row.topLogprobs[i] as number,
  }));
  return { ...spell(pieces, token), logprob: row.logprob, top };
}

/** A control token has a name, but no bytes in the text: all bytes together spell the text. */
function spell(pieces: TokenPieces, token: number): { token: string; bytes: number[] } {
  const bytes = pieces.bytes(token);
  const hasText = !isSilent(pieces.flags(token));
  return { token: Buffer.from(bytes).toString("utf8"), bytes: hasText ? [...bytes] : [] };
}
