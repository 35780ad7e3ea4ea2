import {
  askOnce,
  type ChatAnswer,
  type ChatServer,
  type MeasuredChat,
} from "../support/chat-client.ts";
import { randomWords } from "../support/prompts.ts";
import { mean, type Summary, summarizeSamples } from "../support/statistics.ts";

/** The equal options of every workload on every server. */
interface WorkloadOptions {
  /** Equal for all servers of a round, so that they get the same prompts. */
  readonly seed: number;
  readonly bannedTokens: readonly number[];
  /** The schema of the answers; free text without it. */
  readonly schema?: object | undefined;
}

export interface DecodeResult {
  /** While all streams decode: from the last one's first token to the first one's last. */
  readonly tokensPerSecond: number;
  /** All tokens over the time from the first request to the last token, prompts included. */
  readonly wholeTokensPerSecond: number;
  readonly firstTokenMs: Summary;
  readonly gapMs: Summary;
  readonly completionTokens: number;
}

/** This many streams that start together, each with a prompt of about 32 tokens. */
export async function decode(
  server: ChatServer,
  options: WorkloadOptions,
  concurrency: number,
  maxTokens: number,
): Promise<DecodeResult> {
  const answers = await Promise.all(
    Array.from({ length: concurrency }, (_, i) =>
      ask(server, options, { prompt: randomWords(24, options.seed * 100 + i), maxTokens }),
    ),
  );
  const tokens = answers.reduce((sum, { usage }) => sum + usage!.completion_tokens, 0);
  const frames = answers.reduce((sum, { textTimes }) => sum + textTimes.length, 0);
  const from = Math.max(...answers.map(({ textTimes }) => textTimes[0]!));
  const to = Math.min(...answers.map(({ textTimes }) => textTimes.at(-1)!));
  const between = answers.flatMap(({ textTimes }) => textTimes.filter((t) => t > from && t <= to));
  const started = Math.min(...answers.map(({ sentAt }) => sentAt));
  const ended = Math.max(...answers.map(({ textTimes }) => textTimes.at(-1)!));
  return {
    // An event may hold several tokens or none; the usage has their number.
    tokensPerSecond: (between.length * (tokens / frames)) / ((to - from) / 1000),
    wholeTokensPerSecond: tokens / ((ended - started) / 1000),
    firstTokenMs: summarizeSamples(answers.map(firstTokenMs)),
    gapMs: summarizeSamples(answers.flatMap(gaps)),
    completionTokens: tokens,
  };
}

export interface FirstTokenResult {
  readonly ms: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/**
 * A request with a prompt of about 64 tokens, which shares only the template's beginning with
 * others.
 */
export async function firstToken(
  server: ChatServer,
  options: WorkloadOptions,
  request: number,
): Promise<FirstTokenResult> {
  const prompt = randomWords(48, options.seed * 1_000 + request);
  const answer = await ask(server, options, { prompt, maxTokens: 2 });
  const promptTokens = answer.usage!.prompt_tokens;
  return { ms: firstTokenMs(answer), promptTokens, cachedTokens: cached([answer]) };
}

/** Concurrent requests with the same, previously unseen first 256 tokens. */
export async function sharedPrefix(
  server: ChatServer,
  options: WorkloadOptions,
  requests: number,
): Promise<{ readonly meanFirstTokenMs: number; readonly cachedTokens: number }> {
  const prefix = randomWords(256, options.seed + 500_000);
  const answers = await Promise.all(
    Array.from({ length: requests }, (_, i) =>
      ask(server, options, {
        prompt: `${prefix} ${randomWords(16, options.seed * 100 + i)}`,
        maxTokens: 2,
      }),
    ),
  );
  return { meanFirstTokenMs: mean(answers.map(firstTokenMs)), cachedTokens: cached(answers) };
}

/** The stall of three decoding streams when a prompt of about 1,024 tokens arrives. */
export async function longPromptAmongDecodes(
  server: ChatServer,
  options: WorkloadOptions,
): Promise<{
  readonly worstGapMs: number;
  readonly gapMs: Summary;
  readonly firstTokenMs: number;
}> {
  const victims = 3;
  const settledAfter = 8;
  const counts = new Array<number>(victims).fill(0);
  let long: Promise<ChatAnswer> | undefined;
  const answers = await Promise.all(
    counts.map((_, i) =>
      ask(server, options, {
        prompt: randomWords(24, options.seed * 100 + i),
        maxTokens: 96,
        onText: () => {
          counts[i]! += 1;
          if (counts.every((count) => count >= settledAfter)) {
            const prompt = randomWords(1_000, options.seed + 900_000);
            long ??= ask(server, options, { prompt, maxTokens: 2 });
          }
        },
      }),
    ),
  );
  if (!long) throw new Error(`${server.name} ended its answers before the long prompt was sent`);
  const gapMs = summarizeSamples(answers.flatMap(gaps));
  return { worstGapMs: gapMs.max, gapMs, firstTokenMs: firstTokenMs(await long) };
}

/** Rejects unless the answer is complete: a failed request has no valid measurement. */
async function ask(
  server: ChatServer,
  options: WorkloadOptions,
  request: Pick<MeasuredChat, "prompt" | "maxTokens" | "onText">,
): Promise<ChatAnswer> {
  const { bannedTokens, schema } = options;
  const answer = await askOnce(server, { ...request, temperature: 0, bannedTokens, schema });
  if (answer.outcome !== "answered") throw new Error(`${server.name}: ${answer.outcome}`);
  const tokens = answer.usage?.completion_tokens;
  if (tokens === request.maxTokens && answer.textTimes.length > 0) return answer;
  throw new Error(
    `${server.name} gave ${tokens} tokens of ${request.maxTokens}: name the model's ending tokens with --eos`,
  );
}

/** The mean number of cached prompt tokens. */
function cached(answers: readonly ChatAnswer[]): number {
  return mean(answers.map(({ usage }) => usage?.prompt_tokens_details?.cached_tokens ?? 0));
}

function firstTokenMs({ sentAt, textTimes }: ChatAnswer): number {
  return textTimes[0]! - sentAt;
}

function gaps({ textTimes }: ChatAnswer): number[] {
  return textTimes.slice(1).map((time, i) => time - textTimes[i]!);
}
