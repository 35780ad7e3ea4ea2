import type { Heddle } from "@heddle/client/heddle";
import type { ChatRequest } from "@heddle/client/resources/chat";
import type { ChatChunk } from "@heddle/contracts/api/chat";

/** What one streamed answer came to. */
export interface ChatResult {
  readonly text: string;
  readonly completionTokens: number;
  /** From the request to its first piece of text. */
  readonly firstTokenMs: number;
  /** From the request to its last piece of text. */
  readonly lastTextMs: number;
  /** The share of its pieces of text that came after the first ones, which may come many at once. */
  readonly laterShare: number;
  /** From the request to its end. */
  readonly totalMs: number;
  readonly finishReason: string | undefined;
  /** Token counts as the cluster sent them; absent where it sent none. */
  readonly usage: Readonly<Record<string, unknown>> | undefined;
}

/** Pieces that come so soon after the first were made before it was read. */
const FIRST_BURST_MS = 5;
/** Over a shorter time than this a rate tells of the network's pieces, not of the model. */
const LEAST_RATED_MS = 100;

/** Asks and hands each piece of the answer to `onText`. Rejects with a HeddleError. */
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
 * The rate of the tokens that came after the first pieces; undefined where they came in so short a
 * time that none can be told. A piece is taken for as many tokens as another.
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
