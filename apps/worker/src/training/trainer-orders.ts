import type { TlsMaterial } from "@heddle/rpc/pki/tls-identity";

/**
 * All that a trainer's process is told. It comes over standard input, which nobody else can read,
 * because it holds what the node proves itself with.
 */
export interface TrainerOrders {
  readonly clusterToken: string;
  /** Where nodes speak TLS. */
  readonly tls?: TlsMaterial | undefined;
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
