import type { PluginEntry } from "./plugin-entry.ts";

/**
 * The input of a trainer's process, as JSON on standard input, which no other process can read: it
 * holds the task's credentials. It holds none of the node's.
 */
export interface TrainerOrders {
  /** For the parameter servers: valid for this attempt alone. */
  readonly ticket: string;
  /** The cluster's certificate (PEM), with TLS. */
  readonly authority?: string | undefined;
  /** The token of this attempt's data connections, in hexadecimal. */
  readonly jobToken: string;
  readonly jobId: string;
  readonly jobName: string;
  /** The fencing token. */
  readonly attempt: number;
  readonly rank: number;
  readonly tasks: number;
  readonly algorithm: string;
  readonly config: unknown;
  /** gRPC addresses by shard. */
  readonly parameterServers: readonly string[];
  /** gRPC addresses of all ready parameter servers; any may hold checkpoint pieces. */
  readonly readyServers: readonly string[];
  /** Addresses of servers that were lost minutes ago: one that returns may have the only copy. */
  readonly lostServers: readonly string[];
  /** Lost tasks without which the others continue. */
  readonly failureTolerance?: number | undefined;
  /** How many tasks of this rank and attempt were lost before this one; 0 by default. */
  readonly incarnation?: number | undefined;
  /**
   * Node ids by rank; empty: each task is on its own node, or connects to the servers by itself.
   */
  readonly nodes: readonly string[];
  /** The checkpoint that this attempt resumes from; empty for a fresh start. */
  readonly resumeFrom: string;
  readonly keepCheckpoints: number;
  /** This machine's address for the parameter servers. */
  readonly host: string;
  /** Threads of one operator. */
  readonly threads: number;
  /** Whether the task holds a GPU that is not simulated. */
  readonly hasGpu: boolean;
  /** Plugins, in load order; absent for none. */
  readonly plugins?: readonly PluginEntry[] | undefined;
  /** The version of the worker's package. */
  readonly release: string;
  readonly checkpointDirectory: string;
  readonly artifactDirectory: string;
  readonly progressFile: string;
  /** Where the tasks of this attempt on this node have their sockets; no other job reaches it. */
  readonly socketDirectory: string;
}
