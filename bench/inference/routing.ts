import { pathToFileURL } from "node:url";
import { type ChatServer, measureChat } from "../support/chat-client.ts";
import { heddleUp, type RunningHeddle } from "../support/heddle-up.ts";
import { HttpConnection } from "../support/http-connection.ts";
import { randomWords } from "../support/prompts.ts";
import { mean } from "../support/statistics.ts";
import { oursAt } from "./servers.ts";
import { type SessionAnswer, sessionsOf, type WorkerSession } from "./worker-session.ts";

/** One way's requests of a round. */
interface RoutedRequests {
  readonly meanFirstTokenMs: number;
  /** Prompt tokens that the chosen workers had not cached, and all prompt tokens. */
  readonly computedTokens: number;
  readonly promptTokens: number;
}

/** The same workload round-robin and by prefix. */
export interface RoutingRound {
  readonly inTurn: RoutedRequests;
  readonly byPrefix: RoutedRequests;
}

/** Conversations with a common beginning of this many words, and the continuations of each. */
const groups = 4;
const prefixWords = 256;
const questions = 4;
const maxTokens = 2;
const model = "bench-routing";

/**
 * Two workers and prompts with shared prefixes, one request after the other. One way is the master,
 * which routes by prefix; the other goes round-robin directly to the workers, without HTTP and the
 * master. Both alternate on the same processes, so that other load affects both, with different
 * prompts, so that neither uses the other's cache.
 */
export async function compareRouting(
  modelFile: string,
  rounds: number,
): Promise<readonly RoutingRound[]> {
  const cluster = await heddleUp(["--profile", "tiny", "--workers", "2"]);
  const { api } = cluster;
  const source = pathToFileURL(modelFile).href;
  const options = { threads: 1, max_sequences: 8, context_tokens: 2_048, kv_tokens: 16_384 };
  await api.serve({ id: model, source, options, replicas: "every-worker" }, 120_000);
  const server = oursAt(api.url, await api.createLimitedKey(), model);
  const sessions = await bothSessions(cluster);
  const connection = new HttpConnection(server.origin);
  const measured: RoutingRound[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const pairs = await alternate(
      (prompt, i) => sessions[i % sessions.length]!.ask(prompt, maxTokens),
      (prompt) => askMaster(server, connection, prompt),
      round,
    );
    measured.push(pairs);
    console.log(
      `round ${round + 1}  in turns ${describe(pairs.inTurn)}  by prefix ${describe(pairs.byPrefix)}`,
    );
  }
  connection.close();
  for (const session of sessions) session.close();
  return measured;
}

async function bothSessions(cluster: RunningHeddle): Promise<readonly WorkerSession[]> {
  for (let left = 600; ; left -= 1) {
    const sessions = await sessionsOf(cluster, model);
    if (sessions.length === 2) return sessions;
    for (const session of sessions) session.close();
    if (left === 0) throw new Error(`${model} is not ready on two workers`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** The questions of all conversations: in order within each, interleaved between them. */
function prompts(seed: number): readonly string[] {
  const group = (index: number) => randomWords(prefixWords, 700_000 + seed * 100 + index);
  const beginnings = Array.from({ length: groups }, (_, i) => group(i));
  return Array.from({ length: groups * questions }, (_, i) => {
    // Another order in each lap, so that round-robin does not keep a conversation on one worker by
    // chance.
    const lap = Math.floor(i / groups);
    const beginning = beginnings[(i * 3 + lap) % groups]!;
    return `${beginning} ${randomWords(16, 800_000 + seed * 1_000 + i)}`;
  });
}

type Ask = (prompt: string, index: number) => Promise<SessionAnswer>;

async function alternate(inTurn: Ask, byPrefix: Ask, round: number): Promise<RoutingRound> {
  const ways = [
    { ask: inTurn, prompts: prompts(2 * round), answers: [] as SessionAnswer[] },
    { ask: byPrefix, prompts: prompts(2 * round + 1), answers: [] as SessionAnswer[] },
  ];
  for (let i = 0; i < groups * questions; i += 1) {
    // The first way alternates with every request.
    for (const way of (i + round) % 2 === 0 ? ways : ways.toReversed()) {
      way.answers.push(await way.ask(way.prompts[i]!, i));
    }
  }
  const [turns, prefix] = ways.map(({ answers }) => summarizeAnswers(answers));
  return { inTurn: turns!, byPrefix: prefix! };
}

async function askMaster(
  server: ChatServer,
  connection: HttpConnection,
  prompt: string,
): Promise<SessionAnswer> {
  const request = { prompt, maxTokens, temperature: 0, bannedTokens: [] };
  const { sentAt, textTimes, usage } = await measureChat(server, connection, request);
  const [firstAt] = textTimes;
  return {
    firstTextMs: firstAt === undefined ? undefined : firstAt - sentAt,
    promptTokens: usage!.prompt_tokens,
    cachedTokens: usage!.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

function summarizeAnswers(answers: readonly SessionAnswer[]): RoutedRequests {
  const promptTokens = answers.reduce((sum, answer) => sum + answer.promptTokens, 0);
  const cachedTokens = answers.reduce((sum, answer) => sum + answer.cachedTokens, 0);
  const times = answers.map(({ firstTextMs }) => firstTextMs).filter((ms) => ms !== undefined);
  return {
    meanFirstTokenMs: mean(times),
    computedTokens: promptTokens - cachedTokens,
    promptTokens,
  };
}

function describe({ meanFirstTokenMs, computedTokens, promptTokens }: RoutedRequests): string {
  return `${meanFirstTokenMs.toFixed(0)} ms, ${computedTokens} of ${promptTokens} tokens computed`;
}
