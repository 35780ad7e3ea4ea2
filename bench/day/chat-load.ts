import type { Heddle } from "@heddle/client/heddle";
import { randomWords } from "../support/prompts.ts";
import { untilAnswered } from "./until-answered.ts";

/** One answer as its client saw it. */
export interface ChatOutcome {
  readonly atMs: number;
  readonly ms: number;
  /** Codes of the tries that failed, in order. */
  readonly failures: readonly string[];
  readonly isAnswered: boolean;
}

const TRIES = 60;
const MAX_TOKENS = 48;

/** Streams answers from this many clients at once until the signal aborts. */
export async function chatLoad(
  heddle: Heddle,
  model: string,
  clients: number,
  random: () => number,
  signal: AbortSignal,
): Promise<readonly ChatOutcome[]> {
  const outcomes: ChatOutcome[] = [];
  let next = 0;
  const client = async () => {
    while (!signal.aborted) {
      next += 1;
      const content = randomWords(1 + Math.floor(random() * 30), next);
      outcomes.push(await oneAnswer(heddle, { model, content }));
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  return outcomes;
}

async function oneAnswer(
  heddle: Heddle,
  { model, content }: { readonly model: string; readonly content: string },
): Promise<ChatOutcome> {
  const atMs = performance.now();
  const failures: string[] = [];
  const answer = async () => {
    const messages = [{ role: "user", content }] as const;
    let isFinished = false;
    for await (const chunk of heddle.chat.stream({ model, messages, max_tokens: MAX_TOKENS })) {
      isFinished ||= chunk.choices.some(({ finish_reason }) => finish_reason !== null);
    }
    if (!isFinished) throw new Error("ended without a finish_reason");
  };
  const onFailure = (error: Error & { readonly code?: string }) => {
    failures.push(error.code ?? error.message);
  };
  const isAnswered = await untilAnswered(TRIES, answer, onFailure).then(
    () => true,
    () => false,
  );
  return { atMs, ms: performance.now() - atMs, failures, isAnswered };
}
