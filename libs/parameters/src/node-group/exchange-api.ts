import type { JobCredentials } from "@heddle/rpc/job-ticket";
import type { Parameters, PushTerms } from "@heddle/training/parameter-client";
import type { DataPath } from "../data-plane/data-route.ts";
import type { ParameterTraffic } from "../parameter-server-client.ts";
import type { ShardSetSpec } from "../shards/shard-spec.ts";
import type { NodeGroup } from "./node-group.ts";

/** For a program that is not a task, such as a bench; threads receive no node certificates. */
interface TokenCredentials {
  readonly clusterToken: string;
}

/** The start message of the thread for a task's exchanges. */
export interface ExchangeStart {
  readonly spec: ShardSetSpec;
  readonly credentials: JobCredentials | TokenCredentials;
  /** The node's rank. */
  readonly rank: number;
  readonly host: string;
  readonly incarnation: number | undefined;
  readonly topkFraction: number | undefined;
  readonly paths: readonly DataPath[] | undefined;
  readonly socketDirectory: string | undefined;
  readonly timeoutMs: number | undefined;
  /** Indexed by fragment. */
  readonly groups: readonly NodeGroup[];
  /** In shared memory: parameters from the servers, and parts for them. */
  readonly shared: Parameters;
  readonly part: Parameters;
}

/** Indexed by fragment: the pushes of this task's node; absent where another task leads the node. */
export type ExchangeClocks = readonly (number | undefined)[];

/** Its answer: where this task leads its node, the traffic with the servers so far. */
export type ExchangeTraffic = ParameterTraffic | undefined;

/** The thread's calls for the computing thread. An abort of any call ends all waits. */
export interface ExchangeApi {
  /** Joins the shards of all fragments. */
  join(argument: undefined, signal: AbortSignal): Promise<ExchangeClocks>;
  /** Sends the job its first parameters, which are in `shared`. */
  initialize(argument: undefined, signal: AbortSignal): Promise<ExchangeTraffic>;
  /** Pushes the `part` of all fragments. */
  pushAll(terms: PushTerms, signal: AbortSignal): Promise<ExchangeTraffic>;
  /**
   * Pulls all fragments into `shared`; returns the least version. `alone` asks the servers without
   * this node's other tasks, which are done.
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
  /** Notifies the other tasks of the node that the job has ended. */
  dismiss(argument: undefined, signal: AbortSignal): Promise<ExchangeTraffic>;
  close(argument: undefined, signal: AbortSignal): Promise<ExchangeTraffic>;
}
