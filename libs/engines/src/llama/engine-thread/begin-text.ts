import { type TextSequence, waitingState } from "../kv-cache/sequence.ts";
import { TokenList } from "../kv-cache/token-list.ts";
import type { SentTokens, ThreadSubmit } from "../protocol/thread-messages.ts";
import { ReasoningLimiter } from "../sampling/reasoning-limiter.ts";
import { Sampler, type SamplerScratch } from "../sampling/sampler.ts";
import type { DraftRounds } from "../speculation/draft-rounds.ts";
import type { LoadedModel } from "./model.ts";
import type { ThreadGrammars } from "./thread-grammars.ts";

/** Room for answer tokens that a sequence starts with. */
const SPARE_TOKENS = 64;
const NONE: SentTokens = { tokens: new Int32Array(0), isCut: false };

/** What the sequences of an engine thread share. */
export interface TextParts {
  readonly model: LoadedModel;
  readonly grammars: ThreadGrammars;
  readonly scratch: SamplerScratch;
  readonly drafts: DraftRounds;
}

/** Which choice of a request begins, and when. */
interface Beginning {
  readonly choice: number;
  /** The number of its adapter. */
  readonly adapter: number;
  readonly nowMs: number;
}

/**
 * The sequences of a request's choices that are not finished. One that is continued is as after its
 * latest token, and computes its cells again as after a preemption. Undefined where its tokens do not
 * fit the grammar.
 */
export function beginTexts(
  parts: TextParts,
  request: ThreadSubmit,
  adapter: number,
  nowMs: number,
): TextSequence[] | undefined {
  const begun: TextSequence[] = [];
  for (let choice = 0; choice < request.choices; choice++) {
    if (request.sent !== undefined && request.sent[choice] === undefined) continue;
    const sequence = beginText(parts, request, { choice, adapter, nowMs }, begun.length === 0);
    if (!repeat(sequence, request.sent?.[choice] ?? NONE)) return undefined;
    begun.push(sequence);
  }
  return begun;
}

function beginText(
  { model, grammars, scratch, drafts }: TextParts,
  request: ThreadSubmit,
  { choice, adapter, nowMs }: Beginning,
  isFirst: boolean,
): TextSequence {
  const { sampling, prompt, sent } = request;
  const before = (sent?.[choice] ?? NONE).tokens;
  const tokens = new TokenList(prompt, before.length + SPARE_TOKENS);
  for (const token of before) tokens.push(token);
  const seed = (sampling.seed + choice) >>> 0;
  const mayDraft = model.cache.shares && model.draftTokens > 0;
  return {
    ...waitingState(request, choice, tokens, nowMs, {
      adapter,
      isFirst,
      promptLength: prompt.length,
    }),
    request,
    sampler: new Sampler({ ...sampling, seed }, scratch, prompt),
    grammar: grammars.begin(request.grammar),
    reasoning: request.reasoning && new ReasoningLimiter(request.reasoning, model.tokenBytes),
    sampled: 0,
    scored: request.scoresPrompt && choice === 0 ? 1 : tokens.length,
    // A draft's tokens are computed in one call, which rounds differently.
    drafter:
      mayDraft && !request.isDeterministic
        ? drafts.drafterOf(tokens, sampling.temperature)
        : undefined,
  };
}

/** Brings all that follows the text to where it was behind these tokens. */
function repeat(sequence: TextSequence, { tokens, isCut }: SentTokens): boolean {
  const { sampler, grammar, reasoning } = sequence;
  for (const token of tokens) {
    if (grammar?.allows(token) === false) return false;
    sampler.accept(token);
    grammar?.accept(token);
    reasoning?.accept(token);
  }
  if (isCut) grammar?.cut();
  sequence.sampled = tokens.length;
  return true;
}
