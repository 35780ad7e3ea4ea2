import type { PendingReason } from "../model.ts";

/** What each blocker means to the owner of a job. */
export const PENDING_REASON_MEANINGS: Readonly<Record<PendingReason, string>> = {
  QuotaExceeded: "A quota of the project is reached.",
  InsufficientGpu: "Not enough GPUs are free.",
  InsufficientCpu: "Not enough processor cores are free.",
  InsufficientMemory: "Not enough memory is free.",
  InsufficientLocalSsd: "Not enough local SSD is free.",
  InsufficientIo: "Not enough disk operations are free.",
  InsufficientNetwork: "Not enough network is free.",
  InsufficientTaskPlaces: "Use fewer `tasks`.",
  InsufficientSharedStorage: "Not enough shared storage is free.",
  NoNodes: "There are no nodes.",
  Fragmented: "Enough is free in all, but not in one place.",
  TopologyUnavailable: "No rack or fabric has room for the gang.",
  PriorityBehind: "Jobs before it may use the same nodes.",
  DependencyWait: "Other jobs must succeed first.",
  AffinityNoMatch: "No node passes the filters, or no parameter server has room.",
  ExecutorUnavailable: "No node offers the executor; see `wanted` and `offered`.",
  AlgorithmUnavailable: "No node offers the algorithm; see `wanted` and `offered`.",
  NodesDraining: "The nodes that would do are draining.",
  NodesLost: "The nodes that would do are lost.",
  QueueFull: "The length of the queue is reached.",
  Backoff: "It waits before a retry.",
  PreemptionInProgress: "Jobs that make room for it are leaving.",
};
