import type { TokenLogprob } from "@heddle/contracts/engine";
import { StopScanner } from "../../text/stop-scanner.ts";
import { Utf8Stream } from "../../text/utf8-stream.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { TokenPieces } from "../tokenizing/token-pieces.ts";
import { isSilent } from "../tokenizing/vocabulary.ts";

/** What a token added to the answer. */
export interface TextDelta {
  readonly text: string;
  /** Tokens since the last delta that was let out. */
  readonly tokens: number;
  readonly logprobs: readonly TokenLogprob[] | undefined;
}

interface HeldLogprob {
  readonly logprob: TokenLogprob;
  /** Where in the decoded text the token's characters begin. */
  readonly start: number;
}

/**
 * The text of one choice: tokens in, whole characters out, cut before the first stop string.
 * Log-probabilities always belong to the text given out: those of held-back text are held back with
 * it, and those of tokens wholly behind the cut are dropped.
 */
export class ChoiceText {
  readonly #pieces: TokenPieces;
  readonly #utf8 = new Utf8Stream();
  readonly #scanner: StopScanner;
  #tokens = 0;
  #decoded = 0;
  #released = 0;
  #stopped = false;
  #held: HeldLogprob[] = [];

  constructor(pieces: TokenPieces, stops: readonly string[]) {
    this.#pieces = pieces;
    this.#scanner = new StopScanner(stops);
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
    this.#tokens++;
    if (row !== undefined) {
      this.#held.push({ logprob: scoredToken(this.#pieces, token, row), start: this.#decoded });
    }
    if (isSilent(this.#pieces.flags(token))) return this.#release("", false);
    const whole = this.#pieces.text(token);
    const text =
      whole === undefined
        ? this.#utf8.push(this.#pieces.bytes(token))
        : this.#utf8.pushWhole(whole);
    return this.#release(this.#scan(text), false);
  }

  /** The choice ended: lets out what was held back. `extraTokens` have no text of their own. */
  finish(extraTokens: number): TextDelta | undefined {
    this.#tokens += extraTokens;
    const tail = this.#scan(this.#utf8.flush());
    return this.#release(this.#stopped ? tail : tail + this.#scanner.flush(), true);
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
    const logprobs = this.#releaseLogprobs(final);
    const nothing = text === "" && logprobs === undefined;
    if (nothing && !(final && this.#tokens > 0)) return undefined;
    const delta = { text, tokens: this.#tokens, logprobs };
    this.#tokens = 0;
    return delta;
  }

  #releaseLogprobs(final: boolean): TokenLogprob[] | undefined {
    if (this.#held.length === 0) return undefined;
    const everything = this.#released === this.#decoded || (final && !this.#stopped);
    const count = everything
      ? this.#held.length
      : this.#held.filter((held) => held.start < this.#released).length;
    const freed = this.#held.splice(0, count);
    return freed.length > 0 ? freed.map((held) => held.logprob) : undefined;
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
