import type { JobCredentials } from "@heddle/rpc/job-ticket";
import type { Parameters, PushTerms } from "@heddle/training/parameter-client";
import type { DataPath } from "../data-plane/part-source.ts";
import type { ParameterTraffic } from "../parameter-server-client.ts";
import type { ShardSetSpec } from "../shards/shard-spec.ts";
import type { NodeGroup } from "./node-group.ts";

/** Of a program that is no task, as a bench; threads are given no certificates of nodes. */
interface TokenCredentials {
  readonly clusterToken: string;
}

/** What the thread of a task's exchanges is started with. */
export interface ExchangeStart {
  readonly spec: ShardSetSpec;
  readonly credentials: JobCredentials | TokenCredentials;
  /** Of the node. */
  readonly rank: number;
  readonly host: string;
  readonly incarnation: number | undefined;
  readonly topkFraction: number | undefined;
  readonly paths: readonly DataPath[] | undefined;
  readonly patienceMs: number | undefined;
  /** By fragment. */
  readonly groups: readonly NodeGroup[];
  /** In shared memory: what comes from the servers, and what goes there. */
  readonly shared: Parameters;
  readonly part: Parameters;
}

/** By fragment: how often this task's node has pushed; absent where another task leads the node. */
export type ExchangeClocks = readonly (number | undefined)[];

/** What it answers with: where this task leads its node, what went to and from the servers so far. */
export type ExchangeTraffic = ParameterTraffic | undefined;

/** What the thread does for the one that computes. An abort of any call ends all waits. */
export interface ExchangeApi {
  /** Joins the shards of all fragments. */
  join(argument: undefined, signal: AbortSignal): Promise<ExchangeClocks>;
  /** Gives the job its first parameters, which are in `shared`. */
  initialize(argument: undefined, signal: AbortSignal): Promise<ExchangeTraffic>;
  /** Pushes what is in `part` of all fragments. */
  pushAll(terms: PushTerms, signal: AbortSignal): Promise<ExchangeTraffic>;
  /**
   * Pulls all fragments into `shared`; gives the least version. `alone` asks the servers without this
   * node's other tasks, which are done.
   */
  pullAll(
    argument: { readonly alone: boolean },
    signal: AbortSignal,
  ): Promise<{ readonly version: number; readonly traffic: ExchangeTraffic }>;
  /** Pushes a fragment's part, then pulls it. */
  exchange(
    argument: { readonly fragment: number; readonly terms: PushTerms },
    signal: AbortSignal,
  ): Promise<ExchangeTraffic>;
  /** Tells the other tasks of the node that the job is over. */
  dismiss(argument: undefined, signal: AbortSignal): Promise<ExchangeTraffic>;
  close(argument: undefined, signal: AbortSignal): Promise<ExchangeTraffic>;
}
