import { AppError } from "@heddle/base/errors";
import type { GenerateRequest, SamplingOptions } from "@heddle/contracts/engine";
import type { ThreadAdapter, ThreadSubmit } from "../protocol/thread-messages.ts";
import type { LiveRequest } from "./live-request.ts";

/** The worker has put its file in place. */
function adapterOf({ adapter }: GenerateRequest): ThreadAdapter | undefined {
  if (adapter === undefined) return undefined;
  const { path, scale } = adapter;
  if (path === undefined) throw new Error("an adapter came without its file");
  return { path, scale };
}

/** What an answer's length is bound by. */
export interface AnswerLimits {
  readonly contextTokens: number;
  /** Whether an answer that fills the context continues. */
  readonly contextShift: boolean;
}

/** What was read of a request. */
export type ReadPrompt = Pick<
  ThreadSubmit,
  "prompt" | "maxTokens" | "grammar" | "reasoning" | "isDeterministic"
>;

/** The most tokens of each choice. Throws where it has more already, or its context was shifted. */
export function outputLimit(live: LiveRequest, limits: AnswerLimits): number {
  const { maxTokens, sent = [] } = live.request;
  const room = limits.contextTokens - live.promptTokens;
  // Of a request for no tokens one is drawn, which shows that the prompt was computed.
  const limit = Math.max(
    1,
    Math.min(maxTokens ?? room, limits.contextShift ? Number.POSITIVE_INFINITY : room),
  );
  const longest = Math.max(0, ...sent.map(({ tokens }) => tokens.length));
  if (longest > limit || (limits.contextShift && longest >= room)) {
    const message = `the answer has ${longest} tokens after ${live.promptTokens} of the prompt, and a context of ${limits.contextTokens} cannot continue it: send the request again`;
    throw new AppError("invalid_value", message, { param: "sent" });
  }
  return limit;
}

/** Every sampling option has its field here; the bias has two. */
type SamplingField = Exclude<keyof SamplingOptions, "logitBias"> | keyof ThreadSubmit["sampling"];

/** The request as the engine thread takes it. */
export function toThreadSubmit(live: LiveRequest, read: ReadPrompt): ThreadSubmit {
  const { prompt, maxTokens, grammar, reasoning, isDeterministic } = read;
  const { request, options } = live;
  const { sampling } = request;
  return {
    kind: "submit",
    firstHandle: live.firstHandle,
    choices: request.choices,
    prompt,
    sent: request.sent?.map(({ tokens, isCut = false }, choice) =>
      live.isOpen(choice) ? { tokens: Int32Array.from(tokens), isCut } : undefined,
    ),
    maxTokens,
    sampling: {
      temperature: sampling.temperature,
      topP: sampling.topP,
      topK: sampling.topK ?? 0,
      minP: sampling.minP ?? 0,
      repetitionPenalty: sampling.repetitionPenalty ?? 1,
      presencePenalty: sampling.presencePenalty,
      frequencyPenalty: sampling.frequencyPenalty,
      seed: sampling.seed ?? Math.floor(Math.random() * 2 ** 32),
      biasTokens: Int32Array.from(sampling.logitBias, ({ token }) => token),
      biasValues: Float32Array.from(sampling.logitBias, ({ bias }) => bias),
    } satisfies Record<SamplingField, unknown>,
    minTokens: request.ignoreEnd ? Number.POSITIVE_INFINITY : (request.minTokens ?? 0),
    topLogprobs: request.topLogprobs ?? -1,
    scoresPrompt: request.echo === true && request.topLogprobs !== undefined,
    grammar,
    reasoning,
    isDeterministic,
    adapter: adapterOf(request),
    cacheSalt: options.cacheSalt,
    fairKey: options.fairKey,
    priority: options.priority,
  };
}
