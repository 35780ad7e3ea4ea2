import { Worker } from "node:worker_threads";
import { ThreadCalls } from "@heddle/base/async/thread-calls";
import { elementCount } from "@heddle/training/ir/value";
import type { Parameters, PushTerms } from "@heddle/training/parameter-client";
import type { FragmentExchange } from "@heddle/training/weave/fragment-exchange";
import type { ParameterServerClientOptions } from "../parameter-server-client.ts";
import { fragmentsOf, type ShardSetSpec } from "../shards/shard-spec.ts";
import type {
  ExchangeApi,
  ExchangeClocks,
  ExchangeStart,
  ExchangeTraffic,
} from "./exchange-api.ts";
import type { NodeGroup } from "./node-group.ts";

/**
 * A task's client of its job's parameters in a thread of its own, so that fragments are exchanged
 * during computation. Both threads share the memory of parameters and parts.
 */
export class ThreadedExchange implements FragmentExchange {
  readonly shared: Parameters;
  readonly part: Parameters;
  readonly #worker: Worker;
  readonly #calls: ThreadCalls<ExchangeApi>;
  readonly #signal: AbortSignal;
  /** Keyed by fragment, from its beginning until it is finished. */
  readonly #underWay = new Map<number, Promise<unknown>>();
  #roundsDone: readonly number[] = [];
  #clocks: ExchangeClocks = [];
  #traffic: ExchangeTraffic;

  private constructor(options: ParameterServerClientOptions, groups: readonly NodeGroup[]) {
    const { spec, credentials, rank, host, topkFraction, paths, timeoutMs } = options;
    const { incarnation, socketDirectory } = options;
    this.shared = sharedTensors(spec);
    this.part = sharedTensors(spec);
    this.#signal = options.signal;
    const url = new URL(`./exchange-thread${import.meta.url.slice(-3)}`, import.meta.url);
    if (!("ticket" in credentials) && !("clusterToken" in credentials && !credentials.tls))
      throw new Error("a thread of exchanges is given a job's ticket");
    const { shared, part } = this;
    const workerData: ExchangeStart = {
      spec,
      credentials,
      rank,
      host,
      groups,
      shared,
      part,
      incarnation,
      topkFraction,
      paths,
      socketDirectory,
      timeoutMs,
    };
    this.#worker = new Worker(url, { workerData });
    this.#calls = new ThreadCalls<ExchangeApi>(this.#worker, "the thread of exchanges");
  }

  /** Joins each fragment's shards, by fragment through the group at the same index. */
  static async start(
    options: ParameterServerClientOptions,
    groups: readonly NodeGroup[],
  ): Promise<ThreadedExchange> {
    const { length } = groups;
    if (length !== fragmentsOf(options.spec)) throw new Error(`${length} groups of fragments`);
    const exchange = new ThreadedExchange(options, groups);
    try {
      exchange.#clocks = await exchange.#calls.call("join", undefined, options.signal);
    } catch (error) {
      await exchange.close();
      throw error;
    }
    return exchange;
  }

  /** At the time of the join. */
  get clocks(): ExchangeClocks {
    return this.#clocks;
  }

  /** As of the latest finished call; undefined where another task leads this node. */
  get traffic(): ExchangeTraffic {
    return this.#traffic;
  }

  /** Rounds that the shards of each fragment contain already: their pushes are skipped. */
  beginAt(roundsDone: readonly number[]): void {
    this.#roundsDone = roundsDone;
  }

  /** Sends the job its first parameters; existing ones stay. */
  async initialize(parameters: Parameters): Promise<void> {
    for (const [name, data] of Object.entries(parameters)) this.shared[name]?.set(data);
    this.#traffic = await this.#calls.call("initialize", undefined, this.#signal);
  }

  begin(fragment: number, round: number, terms: PushTerms): void {
    if ((this.#roundsDone[fragment] ?? 0) >= round) return;
    if (this.#underWay.has(fragment)) throw new Error(`fragment ${fragment} is under way`);
    const exchanged = this.#calls
      .call("exchange", { fragment, terms }, this.#signal)
      .then((traffic) => {
        this.#traffic = traffic;
      });
    // `finish` reports the error.
    exchanged.catch(() => undefined);
    this.#underWay.set(fragment, exchanged);
  }

  async finish(fragment: number): Promise<void> {
    await this.#underWay.get(fragment);
    this.#underWay.delete(fragment);
  }

  async settle(): Promise<void> {
    await Promise.all(this.#underWay.values());
  }

  async pullAll(): Promise<void> {
    await this.#pull(false);
  }

  /** The whole model at once, as a ParameterClient does. */
  async push(part: Parameters, terms: PushTerms): Promise<void> {
    for (const [name, data] of Object.entries(part)) this.part[name]?.set(data);
    this.#traffic = await this.#calls.call("pushAll", terms, this.#signal);
  }

  async pull(into: Parameters): Promise<number> {
    const version = await this.#pull(false);
    for (const [name, data] of Object.entries(this.shared)) into[name]?.set(data);
    return version;
  }

  /** Like `pull`, without this node's other tasks, which are done. */
  async pullAlone(into: Parameters): Promise<void> {
    await this.#pull(true);
    for (const [name, data] of Object.entries(this.shared)) into[name]?.set(data);
  }

  async dismiss(): Promise<void> {
    this.#traffic = await this.#calls.call("dismiss", undefined, this.#signal);
  }

  async close(): Promise<void> {
    // Exchanges in progress are abandoned with the thread.
    if (!this.#calls.ended) await this.#calls.call("close", undefined).catch(() => undefined);
    await this.#worker.terminate();
  }

  async #pull(alone: boolean): Promise<number> {
    const { version, traffic } = await this.#calls.call("pullAll", { alone }, this.#signal);
    this.#traffic = traffic;
    return version;
  }
}

function sharedTensors({ parameters }: ShardSetSpec): Parameters {
  return Object.fromEntries(
    parameters.map(({ name, shape }) => {
      const memory = new SharedArrayBuffer(elementCount(shape) * 4);
      return [name, new Float32Array(memory)];
    }),
  );
}
