import { type ChatServer, measureChat } from "../support/chat-client.ts";
import { type RunningHeddle, serveTinyModel } from "../support/heddle-up.ts";
import { HttpConnection } from "../support/http-connection.ts";
import { randomWords } from "../support/prompts.ts";
import { type Summary, summarizeSamples } from "../support/statistics.ts";
import { oursAt } from "./servers.ts";
import { sessionsOf, type WorkerSession } from "./worker-session.ts";

/**
 * The same requests over the whole path, and directly to the worker as a master would send them.
 */
export interface OverheadResult {
  readonly http: Summary;
  readonly session: Summary;
}

/**
 * Uncounted warm-up of the JIT compilers of every process: the overhead of HTTP and the master
 * falls until about this many requests.
 */
const warmupRequests = 1_500;
const requests = 500;
const maxTokens = 2;

/** Times first tokens of the tiny model, whose own share is small. */
export async function masterOverhead(cluster: RunningHeddle): Promise<OverheadResult> {
  const { api } = cluster;
  const model = await serveTinyModel(cluster);
  const [session] = await sessionsOf(cluster, model);
  if (!session) throw new Error(`no worker has ${model}`);
  const server = oursAt(api.url, await api.createLimitedKey(), model);
  const result = await alternate(server, session);
  session.close();
  return result;
}

async function alternate(server: ChatServer, session: WorkerSession): Promise<OverheadResult> {
  const connection = new HttpConnection(server.origin);
  const http: number[] = [];
  const direct: number[] = [];
  for (let i = 0; i < warmupRequests + requests; i += 1) {
    const prompt = (path: number) => randomWords(16, 10_000 * path + i);
    const request = { prompt: prompt(1), maxTokens, temperature: 0, bannedTokens: [] };
    const { sentAt, textTimes } = await measureChat(server, connection, request);
    // The random model may start with a token without text; such an answer is left out of both.
    const { firstTextMs: viaSession } = await session.ask(prompt(2), maxTokens);
    if (i < warmupRequests || textTimes[0] === undefined || viaSession === undefined) continue;
    http.push(textTimes[0] - sentAt);
    direct.push(viaSession);
  }
  connection.close();
  return { http: summarizeSamples(http), session: summarizeSamples(direct) };
}
