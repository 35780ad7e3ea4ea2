import type { EngineEvent, GenerateRequest, TokenLogprob } from "@heddle/contracts/engine";
import { Utf8Stream } from "../../text/utf8-stream.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";
import type { TokenPieces } from "../tokenizing/token-pieces.ts";
import { isSilent } from "../tokenizing/vocabulary.ts";
import { scoredToken } from "./choice-text.ts";

/** The texts of tokens, and whether the library put a space before the prompt's text. */
interface EchoTexts {
  readonly pieces: TokenPieces;
  readonly isSpaceAdded: boolean;
}

const SPACE = 0x20;

/**
 * The prompt of a request that gets it back: its text, and the scores of its tokens as they come.
 * A text comes as it was sent, and the begin token that was put before it is left out.
 */
export class PromptEcho {
  readonly #id: number;
  readonly #request: GenerateRequest;
  readonly #texts: EchoTexts;
  readonly #prompt: Int32Array;
  readonly #utf8 = new Utf8Stream();
  #next = 0;
  /** Tokens whose text was given. */
  #spelledTokens = 0;

  constructor(id: number, request: GenerateRequest, prompt: Int32Array, texts: EchoTexts) {
    this.#id = id;
    this.#request = request;
    this.#prompt = prompt;
    this.#texts = texts;
  }

  /** Whether tokens of the prompt still wait for their scores. */
  get isPending(): boolean {
    return this.#request.topLogprobs !== undefined && this.#next < this.#prompt.length;
  }

  /** What can be said at once: all of a prompt without scores, or its first token. */
  begin(): EngineEvent {
    const { input, topLogprobs } = this.#request;
    const text = input.kind === "text" ? input.text : undefined;
    if (topLogprobs !== undefined) return this.#scored([undefined], text ?? "");
    return { type: "prompt", id: this.#id, text: text ?? this.#spelled(this.#prompt) };
  }

  /** The scores of the next tokens. */
  scores(rows: readonly RowLogprobs[]): EngineEvent {
    return this.#scored(rows, "");
  }

  #scored(rows: readonly (RowLogprobs | undefined)[], given: string): EngineEvent {
    const { pieces } = this.#texts;
    const isText = this.#request.input.kind === "text";
    const at = this.#next;
    this.#next += rows.length;
    const tokens = this.#prompt.subarray(at, this.#next);
    const all = rows.map((row, i) => scoredToken(pieces, tokens[i] as number, row));
    const text = isText ? given : this.#spelled(tokens);
    const logprobs = isText ? this.#asSent(all, at) : all;
    return { type: "prompt", id: this.#id, text, logprobs };
  }

  /** The scores as for the sent text: control tokens are spelled, and added begin tokens are absent. */
  #asSent(scored: readonly TokenLogprob[], at: number): readonly TokenLogprob[] {
    const sent = scored.map((each, i) => ({ ...each, bytes: [...this.#bytes(at + i)] }));
    const skipped = this.#beginTokens;
    const first = sent[skipped - at];
    if (skipped >= at && first && this.#texts.isSpaceAdded && first.bytes[0] === SPACE) {
      const bytes = first.bytes.slice(1);
      sent[skipped - at] = { ...first, token: first.token.slice(1), bytes };
    }
    return sent.slice(Math.max(0, skipped - at));
  }

  /** Begin tokens that the vocabulary put before the text. */
  get #beginTokens(): number {
    const { input } = this.#request;
    const { pieces } = this.#texts;
    const first = this.#prompt[0] as number;
    if (input.kind !== "text" || !isSilent(pieces.flags(first))) return 0;
    return input.text.startsWith(Buffer.from(this.#bytes(0)).toString()) ? 0 : 1;
  }

  #bytes(at: number): Uint8Array {
    return this.#texts.pieces.bytes(this.#prompt[at] as number);
  }

  #spelled(tokens: Int32Array): string {
    const { pieces } = this.#texts;
    let text = "";
    for (const token of tokens) {
      if (!isSilent(pieces.flags(token))) text += this.#utf8.push(pieces.bytes(token));
    }
    this.#spelledTokens += tokens.length;
    return this.#spelledTokens < this.#prompt.length ? text : text + this.#utf8.flush();
  }
}
