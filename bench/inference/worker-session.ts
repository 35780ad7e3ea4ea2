import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { GenerateRequest } from "@heddle/contracts/engine";
import type { InferenceEvents__Output } from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import { encodeWork } from "@heddle/rpc/inference-codec";
import { Peer } from "@heddle/rpc/peer";
import { sessionMethod } from "@heddle/rpc/proto";
import type { RunningHeddle } from "../support/heddle-up.ts";

interface WorkerView {
  readonly address: string;
  readonly replicas: readonly { readonly deployment: string; readonly phase: string }[];
}

/** A session with each worker on which the model is ready, bypassing the masters. */
export async function sessionsOf(
  { api, dataDirectory }: RunningHeddle,
  model: string,
): Promise<WorkerSession[]> {
  const { deployment } = (await api.get(`/models/${model}`)) as { deployment: string };
  const { data } = (await api.get("/workers")) as { data: readonly WorkerView[] };
  const token = readFileSync(join(dataDirectory, "cluster-token"), "utf8").trim();
  return data
    .filter(({ replicas }) =>
      replicas.some((replica) => replica.deployment === deployment && replica.phase === "ready"),
    )
    .map(({ address }) => new WorkerSession(address, token, deployment));
}

/** An answer's first text, and the cached tokens of its prompt. */
export interface SessionAnswer {
  /** From the request to the first text; undefined without text. */
  readonly firstTextMs: number | undefined;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** One stream to a worker, one request at a time. */
export class WorkerSession {
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

  /** Resolves when the answer has ended. */
  ask(prompt: string, maxTokens: number): Promise<SessionAnswer> {
    this.#lastId += 1;
    const { promise, resolve, reject } = Promise.withResolvers<SessionAnswer>();
    const sentAt = performance.now();
    let firstAt: number | undefined;
    this.#onEvents = ({ events }) => {
      for (const { delta, done, failed } of events) {
        if (delta?.text) firstAt ??= performance.now() - sentAt;
        const { promptTokens = 0, cachedTokens = 0 } = done ?? {};
        if (done) resolve({ firstTextMs: firstAt, promptTokens, cachedTokens });
        if (failed) reject(new Error(failed.message));
      }
    };
    this.#stream.write({
      start: {
        id: this.#lastId,
        deployment: this.#deployment,
        ...encodeWork(requestOf(prompt, maxTokens)),
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

function requestOf(prompt: string, maxTokens: number): GenerateRequest {
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
