import { pathToFileURL } from "node:url";
import { type ChatServer, streamChat } from "../support/chat-client.ts";
import { heddleUp, type RunningHeddle } from "../support/heddle-up.ts";
import { HttpConnection } from "../support/http-connection.ts";
import { randomWords } from "../support/prompts.ts";
import { mean } from "../support/statistics.ts";
import { oursAt } from "./servers.ts";
import { sessionsOf, type WorkerSession } from "./worker-session.ts";

/** First tokens of one workload, ms, in the order of its requests; in turns, and by prefix. */
export interface RoutingRound {
  readonly inTurnMs: number;
  readonly byPrefixMs: number;
  /** Share of the prompts' tokens that the chosen workers held already. */
  readonly byPrefixCached: number;
}

/** Conversations that begin with so many words of their own, and how often each is gone on with. */
const groups = 4;
const prefixWords = 256;
const questions = 4;
const maxTokens = 2;
const model = "bench-routing";

/**
 * Two workers and prompts that share beginnings, one request after the other: through the master,
 * which routes by prefix, and straight to the two workers in turn, which spares those requests HTTP
 * and the master. Both ways use the same processes; their prompts differ, so that neither finds what
 * the other left.
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
  const measured: RoutingRound[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const turn = () => inTurn(sessions, 2 * round);
    const prefix = () => byPrefix(server, 2 * round + 1);
    // Who goes first changes with the round.
    const first = round % 2 === 0 ? await turn() : undefined;
    const routed = await prefix();
    const inTurnMs = first ?? (await turn());
    measured.push({ inTurnMs, ...routed });
    const [turns, prefixes] = [inTurnMs, routed.byPrefixMs].map((ms) => `${ms.toFixed(0)} ms`);
    console.log(`round ${round + 1}  in turns ${turns}  by prefix ${prefixes}`);
  }
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

/** The questions of all conversations, each conversation's in its order and the conversations mixed. */
function prompts(seed: number): readonly string[] {
  const group = (index: number) => randomWords(prefixWords, 700_000 + seed * 100 + index);
  const beginnings = Array.from({ length: groups }, (_, i) => group(i));
  return Array.from({ length: groups * questions }, (_, i) => {
    // Another order in each lap, so that turns do not keep a conversation to one worker by chance.
    const lap = Math.floor(i / groups);
    const beginning = beginnings[(i * 3 + lap) % groups]!;
    return `${beginning} ${randomWords(16, 800_000 + seed * 1_000 + i)}`;
  });
}

async function inTurn(sessions: readonly WorkerSession[], seed: number): Promise<number> {
  const times: number[] = [];
  for (const [i, prompt] of prompts(seed).entries()) {
    const ms = await sessions[i % sessions.length]!.firstTextMs(prompt, maxTokens);
    if (ms !== undefined) times.push(ms);
  }
  return mean(times);
}

async function byPrefix(server: ChatServer, seed: number): Promise<Omit<RoutingRound, "inTurnMs">> {
  const connection = new HttpConnection(server.origin);
  const times: number[] = [];
  let [cached, prompted] = [0, 0];
  for (const prompt of prompts(seed)) {
    const request = { prompt, maxTokens, temperature: 0, bannedTokens: [] };
    const { sentAt, textTimes, usage } = await streamChat(server, connection, request);
    if (textTimes[0] !== undefined) times.push(textTimes[0] - sentAt);
    cached += usage?.prompt_tokens_details?.cached_tokens ?? 0;
    prompted += usage?.prompt_tokens ?? 0;
  }
  connection.close();
  return { byPrefixMs: mean(times), byPrefixCached: cached / prompted };
}
