import type { MessagePort } from "node:worker_threads";
import { answerCalls } from "@heddle/base/async/thread-calls";
import type { ParameterTraffic } from "../parameter-server-client.ts";
import type { ExchangeApi, ExchangeStart, ExchangeTraffic } from "./exchange-api.ts";
import { joinNodeGroup, type NodeClient } from "./join-node-group.ts";

/**
 * Answers the calls of a task's computing thread. Each fragment is exchanged as if it were a model
 * by itself. An abort of any call ends all waits.
 */
export function answerExchanges(port: MessagePort, start: ExchangeStart): void {
  const { groups, shared, part, ...options } = start;
  const ended = new AbortController();
  let clients: readonly NodeClient[] = [];
  const each = <Result>(work: (client: NodeClient) => Promise<Result>): Promise<Result[]> =>
    Promise.all(clients.map(work));
  const ending =
    <Argument, Result>(work: (argument: Argument) => Promise<Result>) =>
    (argument: Argument, signal: AbortSignal) =>
      endingAll(ended, signal, () => work(argument));
  answerCalls<ExchangeApi>(port, {
    join: ending(async () => {
      const { signal } = ended;
      const joined = groups.map((group, fragment) =>
        joinNodeGroup({ ...options, signal, fragment }, group),
      );
      clients = await Promise.all(joined);
      return clients.map(({ servers }) => servers?.clock);
    }),
    initialize: ending(async () => {
      await each(async ({ servers }) => servers?.initialize(shared));
      return trafficOf(clients);
    }),
    pushAll: ending(async (terms) => {
      await each((client) => client.push(part, terms));
      return trafficOf(clients);
    }),
    pullAll: ending(async ({ alone }) => {
      const versions = await each((client) =>
        ((alone ? client.servers : undefined) ?? client).pull(shared),
      );
      return { version: Math.min(...versions), traffic: trafficOf(clients) };
    }),
    exchange: ending(async ({ fragment, terms }) => {
      const client = clients[fragment];
      await client?.push(part, terms);
      await client?.pull(shared);
      return trafficOf(clients);
    }),
    dismiss: ending(async () => {
      await each((client) => client.dismiss());
      return trafficOf(clients);
    }),
    close: async () => {
      const last = trafficOf(clients);
      await each((client) => client.close());
      return last;
    },
  });
}

/** A call whose abort ends all others. */
async function endingAll<Result>(
  ended: AbortController,
  signal: AbortSignal,
  work: () => Promise<Result>,
): Promise<Result> {
  const onAbort = () => ended.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await work();
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

function trafficOf(clients: readonly NodeClient[]): ExchangeTraffic {
  const traffics = clients.flatMap(({ servers }) => servers?.traffic ?? []);
  if (traffics.length === 0) return undefined;
  const sum = (of: (one: ParameterTraffic) => number) =>
    traffics.reduce((total, one) => total + of(one), 0);
  return {
    paths: traffics.flatMap(({ paths }) => paths),
    bytesPushed: sum(({ bytesPushed }) => bytesPushed),
    bytesPulled: sum(({ bytesPulled }) => bytesPulled),
    retries: sum(({ retries }) => retries),
  };
}
