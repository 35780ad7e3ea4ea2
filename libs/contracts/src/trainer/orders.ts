/**
 * The input of a trainer's process, as JSON on standard input, which no other process can read: it holds
 * the task's credentials. It holds none of the node's.
 */
export interface TrainerOrders {
  /** For the parameter servers: of this attempt alone. */
  readonly ticket: string;
  /** The cluster's certificate (PEM), where nodes speak TLS. */
  readonly authority?: string | undefined;
  /** What data connections of this attempt must show, in hexadecimal. */
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
  /** gRPC addresses of all parameter servers that are ready; any may hold checkpoint pieces. */
  readonly readyServers: readonly string[];
  /** Tasks that may be lost while the others go on. */
  readonly failureTolerance?: number | undefined;
  /** How many tasks of this rank and attempt were lost before this one; 0 where absent. */
  readonly incarnation?: number | undefined;
  /** Node ids by rank; empty: each task is on a node of its own, or goes to the servers by itself. */
  readonly nodes: readonly string[];
  /** The checkpoint that this attempt begins with; empty for a fresh start. */
  readonly resumeFrom: string;
  readonly keepCheckpoints: number;
  /** An address of this machine that the parameter servers reach. */
  readonly host: string;
  /** Threads of one operator. */
  readonly threads: number;
  /** Whether the task holds a GPU that is not simulated. */
  readonly hasGpu: boolean;
  /** Files of plugins, in the order in which they are loaded; none where absent. */
  readonly plugins?: readonly string[] | undefined;
  /** The version of the worker's package. */
  readonly release: string;
  readonly checkpointDirectory: string;
  readonly artifactDirectory: string;
  readonly progressFile: string;
}
