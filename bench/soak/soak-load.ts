import { type ChatAnswer, type ChatServer, measureChat } from "../support/chat-client.ts";
import { HttpConnection } from "../support/http-connection.ts";
import { randomWords } from "../support/prompts.ts";
import { benchRandom } from "../support/statistics.ts";

export interface SoakPlan {
  readonly requests: number;
  readonly concurrency: number;
  /** The share of requests whose client disconnects. */
  readonly cancelled: number;
  readonly seed: number;
}

/** How one request ended, as its client saw it. */
export interface SoakOutcome {
  readonly requestId: string;
  readonly meantToCancel: boolean;
  readonly outcome: string;
  readonly totalMs: number;
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
}

/** A request without an end after this long hangs. */
const hangAfterMs = 120_000;
const maxPromptWords = 40;
const maxTokens = 32;

/** Runs the plan; the content and the disconnect of request i follow from the seed and i alone. */
export async function runSoak(
  server: ChatServer,
  plan: SoakPlan,
  onProgress: (done: number) => void,
): Promise<readonly SoakOutcome[]> {
  const outcomes: SoakOutcome[] = [];
  let next = 0;
  const client = async () => {
    const connection = new HttpConnection(server.origin);
    while (next < plan.requests) {
      next += 1;
      outcomes.push(await oneRequest(server, connection, plan, next));
      onProgress(outcomes.length);
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: plan.concurrency }, client));
  return outcomes;
}

async function oneRequest(
  server: ChatServer,
  connection: HttpConnection,
  plan: SoakPlan,
  index: number,
): Promise<SoakOutcome> {
  const random = benchRandom(plan.seed * 1_000_003 + index);
  const meantToCancel = random() < plan.cancelled;
  const requestId = `soak-${plan.seed}-${index}`;
  const hanging = new AbortController();
  const leaving = new AbortController();
  const timer = setTimeout(() => hanging.abort(), hangAfterMs);
  // Half of those that leave do so after some text, half at a moment that may be before any.
  const afterTexts = meantToCancel && random() < 0.5 ? 1 + Math.floor(random() * 8) : 0;
  const early = meantToCancel && afterTexts === 0 ? random() * 100 : undefined;
  const leaveTimer = early !== undefined && setTimeout(() => leaving.abort(), early);
  let texts = 0;
  const answer = await measureChat(server, connection, {
    prompt: randomWords(1 + Math.floor(random() * maxPromptWords), index),
    maxTokens: 1 + Math.floor(random() * maxTokens),
    temperature: random() < 0.5 ? 0 : 1,
    bannedTokens: [],
    stream: afterTexts > 0 || random() < 0.8,
    requestId,
    hangUp: AbortSignal.any([hanging.signal, leaving.signal]),
    onText: () => {
      texts += 1;
      if (texts === afterTexts) leaving.abort();
    },
  });
  clearTimeout(timer);
  if (leaveTimer) clearTimeout(leaveTimer);
  return outcomeOf(requestId, meantToCancel, hanging.signal.aborted, answer);
}

function outcomeOf(
  requestId: string,
  meantToCancel: boolean,
  hangs: boolean,
  answer: ChatAnswer,
): SoakOutcome {
  return {
    requestId,
    meantToCancel,
    outcome: hangs ? "hangs" : answer.outcome,
    totalMs: answer.endedAt - answer.sentAt,
    promptTokens: answer.usage?.prompt_tokens,
    completionTokens: answer.usage?.completion_tokens,
  };
}
