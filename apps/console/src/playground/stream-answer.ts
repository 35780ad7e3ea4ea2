import { AbortedError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { ChatRequest } from "@heddle/client/resources/inference/chat";
import { type WrittenCall, withCalls } from "./tools.ts";

/** An answer so far. Times are in milliseconds. */
export interface StreamedAnswer {
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly WrittenCall[];
  readonly state: "streaming" | "done" | "stopped" | "failed";
  readonly ttftMs?: number | undefined;
  readonly tokens?: number | undefined;
  readonly tokensPerSecond?: number | undefined;
  readonly error?: unknown;
}

export const NO_ANSWER: StreamedAnswer = {
  text: "",
  reasoning: "",
  calls: [],
  state: "streaming",
};
/** The page is drawn at most this often. */
const DRAW_MS = 40;

/** Streams one answer into `onChange`; it never rejects. */
export async function streamAnswer(
  heddle: Heddle,
  request: ChatRequest,
  signal: AbortSignal,
  onChange: (answer: StreamedAnswer) => void,
): Promise<void> {
  const beganMs = performance.now();
  let answer = NO_ANSWER;
  let firstMs: number | undefined;
  let drawnMs = 0;
  try {
    for await (const { choices, usage } of heddle.chat.stream(request, { signal })) {
      const { content, reasoning_content, tool_calls } = choices[0]?.delta ?? {};
      const nowMs = performance.now();
      if (content || reasoning_content || tool_calls) firstMs ??= nowMs;
      answer = {
        ...answer,
        text: answer.text + (content ?? ""),
        reasoning: answer.reasoning + (reasoning_content ?? ""),
        calls: withCalls(answer.calls, tool_calls),
        ttftMs: firstMs === undefined ? undefined : firstMs - beganMs,
        tokens: usage?.completion_tokens ?? answer.tokens,
      };
      if (nowMs - drawnMs < DRAW_MS) continue;
      drawnMs = nowMs;
      onChange(answer);
    }
    onChange({ ...answer, state: "done", tokensPerSecond: rateOf(answer, firstMs) });
  } catch (error) {
    const isStopped = error instanceof AbortedError;
    onChange({ ...answer, state: isStopped ? "stopped" : "failed", error });
  }
}

/** The rate of the tokens after the first one, which has a measure of its own. */
function rateOf({ tokens }: StreamedAnswer, firstMs: number | undefined): number | undefined {
  if (tokens === undefined || tokens < 2 || firstMs === undefined) return undefined;
  return (1_000 * (tokens - 1)) / Math.max(1, performance.now() - firstMs);
}
