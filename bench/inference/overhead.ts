import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { GenerateRequest } from "@heddle/contracts/engine";
import type { InferenceEvents__Output } from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import { encodeRequest } from "@heddle/rpc/inference-codec";
import { Peer } from "@heddle/rpc/peer";
import { sessionMethod } from "@heddle/rpc/proto";
import { type ChatServer, streamChat } from "../support/chat-client.ts";
import { type RunningHeddle, serveTinyModel } from "../support/heddle-up.ts";
import { HttpConnection } from "../support/http-connection.ts";
import { randomWords } from "../support/prompts.ts";
import { type Summary, summarize } from "../support/statistics.ts";
import { oursAt } from "./servers.ts";

/** The same requests over the whole path, and straight to the worker as a master would send them. */
export interface OverheadResult {
  readonly http: Summary;
  readonly session: Summary;
}

interface WorkerView {
  readonly address: string;
  readonly replicas: readonly { readonly deployment: string }[];
}

/**
 * The first ones warm up the compilers of every process on the way and are not counted: what HTTP and
 * the master add goes on falling until about so many requests.
 */
const warmupRequests = 1_500;
const requests = 500;
const maxTokens = 2;

/** Times first tokens of the tiny model, whose own share is so small that the path's shows. */
export async function masterOverhead(cluster: RunningHeddle): Promise<OverheadResult> {
  const { api, dataDirectory } = cluster;
  const model = await serveTinyModel(cluster);
  const { deployment } = (await api.get(`/models/${model}`)) as { deployment: string };
  const { data } = (await api.get("/workers")) as { data: readonly WorkerView[] };
  const worker = data.find(({ replicas }) => replicas.some((r) => r.deployment === deployment));
  if (!worker) throw new Error(`no worker has ${deployment}`);
  const token = readFileSync(join(dataDirectory, "cluster-token"), "utf8").trim();
  const session = new WorkerSession(worker.address, token, deployment);
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
    const { sentAt, textTimes } = await streamChat(server, connection, request);
    // A tiny random model may give a token without text first; such an answer is left out of both.
    const viaSession = await session.firstTextMs(prompt(2));
    if (i < warmupRequests || textTimes[0] === undefined || viaSession === undefined) continue;
    http.push(textTimes[0] - sentAt);
    direct.push(viaSession);
  }
  connection.close();
  return { http: summarize(http), session: summarize(direct) };
}

/** One stream to a worker, one request at a time. */
class WorkerSession {
  readonly #peer: Peer;
  readonly #stream: ReturnType<typeof openSession>;
  readonly #deployment: string;
  #onEvents: ((message: InferenceEvents__Output) => void) | undefined;
  #lastId = 0;

  constructor(address: string, clusterToken: string, deployment: string) {
    this.#peer = new Peer(address, { clusterToken }, "worker");
    this.#deployment = deployment;
    this.#stream = openSession(this.#peer);
    this.#stream.on("data", (message: InferenceEvents__Output) => this.#onEvents?.(message));
    this.#stream.on("error", () => undefined);
  }

  /** Resolves when the answer has ended; undefined where it brought no text. */
  firstTextMs(prompt: string): Promise<number | undefined> {
    this.#lastId += 1;
    const { promise, resolve, reject } = Promise.withResolvers<number | undefined>();
    const sentAt = performance.now();
    let firstAt: number | undefined;
    this.#onEvents = ({ events }) => {
      for (const { delta, done, failed } of events) {
        if (delta?.text) firstAt ??= performance.now() - sentAt;
        if (done) resolve(firstAt);
        if (failed) reject(new Error(failed.message));
      }
    };
    this.#stream.write({
      start: {
        id: this.#lastId,
        deployment: this.#deployment,
        request: encodeRequest(requestOf(prompt)),
        fairKey: "bench",
        deadlineMs: 60_000,
        priority: 0,
        window: 64,
      },
    });
    return promise;
  }

  close(): void {
    this.#stream.cancel();
    this.#peer.close();
  }
}

function openSession(peer: Peer) {
  return peer.duplex(sessionMethod);
}

function requestOf(prompt: string): GenerateRequest {
  return {
    input: { kind: "chat", messages: [{ role: "user", content: prompt }] },
    sampling: {
      temperature: 0,
      topP: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      logitBias: [],
    },
    choices: 1,
    maxTokens,
    stop: [],
    format: "text",
  };
}
