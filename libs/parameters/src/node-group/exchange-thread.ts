import { parentPort, workerData } from "node:worker_threads";
import type { ParameterTraffic } from "../parameter-server-client.ts";
import { answerCalls } from "../thread-calls.ts";
import type { ExchangeApi, ExchangeStart, ExchangeTraffic } from "./exchange-api.ts";
import { joinNodeGroup, type NodeClient } from "./join-node-group.ts";

// The thread of a task's exchanges: backends block the thread in which they compute. Each fragment
// is exchanged as if it were a model by itself.

const start = workerData as ExchangeStart;
const port = parentPort;
if (!port) throw new Error("the thread of exchanges is started by a training task");

const { credentials, groups, shared, part, ...options } = start;
const ended = new AbortController();
let clients: readonly NodeClient[] = [];

/** Calls each fragment's client. */
async function each<Result>(work: (client: NodeClient) => Promise<Result>): Promise<Result[]> {
  return Promise.all(clients.map(work));
}

/** A call whose abort ends all others. */
function ending<Argument, Result>(
  work: (argument: Argument) => Promise<Result>,
): (argument: Argument, signal: AbortSignal) => Promise<Result> {
  return async (argument, signal) => {
    const onAbort = () => ended.abort(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await work(argument);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  };
}

function traffic(): ExchangeTraffic {
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

const api: ExchangeApi = {
  join: ending(async () => {
    const { signal } = ended;
    const joined = groups.map((group, fragment) =>
      joinNodeGroup({ ...options, credentials, signal, fragment }, group),
    );
    clients = await Promise.all(joined);
    return clients.map(({ servers }) => servers?.clock);
  }),
  initialize: ending(async () => {
    await each(async ({ servers }) => servers?.initialize(shared));
    return traffic();
  }),
  pushAll: ending(async (terms) => {
    await each((client) => client.push(part, terms));
    return traffic();
  }),
  pullAll: ending(async ({ alone }) => {
    const versions = await each((client) =>
      ((alone ? client.servers : undefined) ?? client).pull(shared),
    );
    return { version: Math.min(...versions), traffic: traffic() };
  }),
  exchange: ending(async ({ fragment, terms }) => {
    const client = clients[fragment];
    await client?.push(part, terms);
    await client?.pull(shared);
    return traffic();
  }),
  dismiss: ending(async () => {
    await each((client) => client.dismiss());
    return traffic();
  }),
  close: async () => {
    const last = traffic();
    await each((client) => client.close());
    return last;
  },
};
answerCalls(port, api);
