import type { TextSequence } from "../kv-cache/sequence.ts";
import {
  ENDED_CUT,
  ENDED_LENGTH,
  ENDED_STOP,
  ENDED_STUCK,
  ENDS_GENERATION,
  GOES_ON,
  GOES_ON_CUT,
  goesOn,
} from "../protocol/thread-messages.ts";
import { COMPLETE, STUCK } from "../sampling/grammar.ts";
import { captureRow, finishLogprobs, type RowLogprobs } from "../sampling/logprobs.ts";
import { ANY_TOKEN } from "../sampling/reasoning-limiter.ts";
import type { LoadedModel } from "./model.ts";

/** Draws next tokens. What the latest draw gave is in its fields: no object is made per token. */
export class TokenDraw {
  token = 0;
  /** See ThreadStep.ends. */
  end = GOES_ON;
  logprobs: RowLogprobs | undefined;
  readonly #model: LoadedModel;
  /** Tokens that end the generation. */
  readonly #endTokens: readonly number[];

  constructor(model: LoadedModel) {
    this.#model = model;
    this.#endTokens = [...model.flags.keys()].filter(
      (token) => (model.flags[token] as number) & ENDS_GENERATION,
    );
  }

  /** Draws from the row, which it changes, and appends the token; a stuck sequence gets none. */
  next(sequence: TextSequence, logits: Float32Array): void {
    const { request, sampler, grammar, reasoning } = sequence;
    const raw = request.topLogprobs >= 0 ? captureRow(logits, request.topLogprobs) : undefined;
    sampler.adjust(logits);
    if (sequence.sampled < request.minTokens) this.#forbidEnds(logits);
    const due = reasoning?.due ?? ANY_TOKEN;
    const drawn =
      due !== ANY_TOKEN && (grammar?.allows(due) ?? true) ? due : this.#drawn(sequence, logits);
    if (drawn === STUCK) {
      this.token = this.#model.eosToken;
      this.end = ENDED_STUCK;
      this.logprobs = undefined;
      return;
    }
    // Where no token fits the grammar, the text is complete and the vocabulary cannot say so.
    const token = drawn === COMPLETE ? this.#model.eosToken : drawn;
    this.end = this.#endOf(sequence, token, drawn === COMPLETE);
    sampler.accept(token);
    if (goesOn(this.end)) {
      grammar?.accept(token);
      reasoning?.accept(token);
    }
    sequence.sampled++;
    sequence.tokens.push(token);
    this.token = token;
    this.logprobs = raw === undefined ? undefined : finishLogprobs(raw, token);
  }

  #drawn({ grammar, sampler, request, sampled }: TextSequence, logits: Float32Array): number {
    if (grammar === undefined) return sampler.draw(logits);
    return grammar.draw(logits, request.maxTokens - sampled, (left) => sampler.draw(left));
  }

  #forbidEnds(logits: Float32Array): void {
    for (const token of this.#endTokens) logits[token] = Number.NEGATIVE_INFINITY;
  }

  #endOf(sequence: TextSequence, token: number, complete: boolean): number {
    const isCut = sequence.grammar?.isCut === true;
    if (complete || (this.#model.flags[token] as number) & ENDS_GENERATION) {
      return isCut ? ENDED_CUT : ENDED_STOP;
    }
    const { limits, contextShift } = this.#model;
    const full = sequence.tokens.length + 1 >= limits.contextTokens && !contextShift;
    if (full || sequence.sampled + 1 >= sequence.request.maxTokens) return ENDED_LENGTH;
    return isCut ? GOES_ON_CUT : GOES_ON;
  }
}
