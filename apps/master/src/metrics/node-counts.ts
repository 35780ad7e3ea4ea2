import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import type { NodeView } from "../nodes/node-directory.ts";

export interface NodeCounts {
  readonly workers: number;
  /** `ready` and `suspect` even where there are none. */
  readonly workersByState: Readonly<Record<string, number>>;
  readonly refusing: { readonly worker: number; readonly parameter_server: number };
  readonly replicas: number;
  readonly readyReplicas: number;
  /** Requests in the engines of all replicas. */
  readonly running: number;
  readonly waiting: number;
}

/** Counts the nodes, and what their replicas report. */
export function* countNodes(nodes: readonly NodeView[]): Steps<NodeCounts> {
  const workersByState: Record<string, number> = { ready: 0, suspect: 0 };
  const refusing = { worker: 0, parameter_server: 0 };
  const counts = { workers: 0, replicas: 0, readyReplicas: 0, running: 0, waiting: 0 };
  yield* forEachInSteps(nodes, ({ kind, state, refusesLeader, replicas }) => {
    const isWorker = kind === "worker";
    if (isWorker) {
      counts.workers++;
      workersByState[state] = (workersByState[state] ?? 0) + 1;
    }
    if (refusesLeader !== undefined) refusing[isWorker ? "worker" : "parameter_server"]++;
    for (const { phase, load } of replicas) {
      counts.replicas++;
      if (phase === "ready") counts.readyReplicas++;
      counts.running += load.running;
      counts.waiting += load.waiting;
    }
  });
  return { ...counts, workersByState, refusing };
}
