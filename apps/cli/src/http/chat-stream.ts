import type { Heddle } from "@heddle/client/heddle";
import type { ChatRequest } from "@heddle/client/resources/inference/chat";
import type { ChatChunk } from "@heddle/contracts/api/chat";

/** The result of one streamed answer. */
export interface ChatResult {
  readonly text: string;
  readonly completionTokens: number;
  /** From the request to its first text. */
  readonly firstTokenMs: number;
  /** From the request to its last text. */
  readonly lastTextMs: number;
  /** The share of the chunks after the first burst. */
  readonly laterShare: number;
  /** From the request to its end. */
  readonly totalMs: number;
  readonly finishReason: string | undefined;
  /** Token counts of the cluster; absent if it sent none. */
  readonly usage: Readonly<Record<string, unknown>> | undefined;
}

/** Chunks this soon after the first were generated before the first was read. */
const FIRST_BURST_MS = 5;
/** A rate over a shorter time measures the network, not the model. */
const LEAST_RATED_MS = 100;

/** Sends the request and passes each text to `onText`. Rejects with a HeddleError. */
export async function streamChat(
  { chat }: Heddle,
  request: ChatRequest,
  onText: (text: string) => void,
  signal?: AbortSignal,
): Promise<ChatResult> {
  const startedAtMs = performance.now();
  let text = "";
  let pieces = 0;
  let laterPieces = 0;
  let usage: ChatChunk["usage"];
  let firstTokenMs: number | undefined;
  let lastTextMs = 0;
  let finishReason: string | undefined;
  for await (const chunk of chat.stream(request, { signal })) {
    const choice = chunk.choices?.[0];
    const piece = choice?.delta?.content;
    if (piece) {
      lastTextMs = performance.now() - startedAtMs;
      firstTokenMs ??= lastTextMs;
      text += piece;
      pieces++;
      if (lastTextMs - firstTokenMs > FIRST_BURST_MS) laterPieces++;
      onText(piece);
    }
    finishReason = choice?.finish_reason ?? finishReason;
    usage = chunk.usage ?? usage;
  }
  const totalMs = performance.now() - startedAtMs;
  return {
    text,
    completionTokens: usage?.completion_tokens ?? pieces,
    firstTokenMs: firstTokenMs ?? totalMs,
    lastTextMs,
    laterShare: laterPieces / Math.max(1, pieces),
    totalMs,
    finishReason,
    usage: usage ?? undefined,
  };
}

/**
 * Tokens per second after the first burst; undefined if the time is too short to measure. Chunks
 * count as equally many tokens.
 */
export function tokensPerSecond(result: ChatResult): number | undefined {
  const { completionTokens, laterShare, firstTokenMs, lastTextMs } = result;
  const decodeMs = lastTextMs - firstTokenMs;
  if (decodeMs < LEAST_RATED_MS) return undefined;
  return ((completionTokens * laterShare) / decodeMs) * 1000;
}

/** The line under an answer: tokens, rate and time to the first token. */
export function describeSpeed(result: ChatResult): string {
  const { completionTokens: tokens, firstTokenMs, totalMs } = result;
  const rate = tokensPerSecond(result);
  return [
    `${tokens} tokens in ${(totalMs / 1000).toFixed(2)} s`,
    ...(rate === undefined ? [] : [`${rate.toFixed(1)} tokens/s`]),
    `first token after ${firstTokenMs.toFixed(0)} ms`,
  ].join(", ");
}
