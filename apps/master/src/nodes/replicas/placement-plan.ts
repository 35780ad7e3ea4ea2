import type { ReplicaPhase } from "@heddle/contracts/engine";
import type { DeploymentRecord } from "@heddle/control/state";
import type { WholeReplicas } from "./replica-split.ts";

/** A worker as placement sees it. */
export interface PlacementWorker {
  readonly id: string;
  readonly memoryBytes: number;
  readonly replicas: readonly PlacedReplica[];
  /** Whether its machine has memory for a replica of the deployment; absent: always. */
  readonly hasRoom?: ((deployment: string) => boolean) | undefined;
  /** Set while it is drained: it gets no replica, and loses those that run elsewhere. */
  readonly leaving?: "draining" | "drained" | undefined;
}

interface PlacedReplica {
  readonly deployment: string;
  readonly phase: ReplicaPhase;
  /** Consecutive failures here; 0 if absent. */
  readonly failures?: number | undefined;
}

/** What is placed elsewhere. */
interface FixedPlaces {
  /** Keyed by deployment or stage of one, then worker. */
  readonly places: ReadonlyMap<string, ReadonlyMap<string, unknown>>;
  /** Keyed by deployment: replicas that go to other workers. */
  readonly whole: ReadonlyMap<string, WholeReplicas>;
}

/** What to do now; idempotent. */
export interface PlacementAction {
  readonly type: "load" | "unload";
  readonly worker: string;
  readonly deployment: string;
}

/**
 * Plans the actions that bring the workers to the desired state.
 * - Each deployment runs on every worker or on a number of them.
 * - Replicas stay where they are; new ones go to workers with the fewest deployments.
 * - A failed replica stays, with its reason, until enough others are ready; unloading it would
 *   forget its failures.
 * - What has fixed places runs only there.
 * - Deterministic: the same view gives the same actions.
 */
export function planPlacement(
  deployments: ReadonlyMap<string, DeploymentRecord>,
  all: readonly PlacementWorker[],
  { places = new Map(), whole = new Map() }: Partial<FixedPlaces> = {},
): PlacementAction[] {
  const actions: PlacementAction[] = [];
  const counts = new Map(all.map(({ id, replicas }) => [id, replicas.length]));
  for (const [key, own] of places) {
    const isOther = ({ id }: PlacementWorker) => !own.has(id) && whole.get(key)?.workers.has(id);
    actions.push(
      ...scheduled(
        key,
        all.filter((worker) => !isOther(worker)),
        own,
      ),
    );
  }
  for (const [deployment, { replicas }] of deployments) {
    const own = places.get(deployment);
    const beside = whole.get(deployment);
    if (own && !beside) continue;
    const able = all.filter(({ id }) => !beside || (beside.workers.has(id) && !own?.has(id)));
    actions.push(...leavers(deployment, able));
    const workers = able.filter((worker) => worker.leaving === undefined);
    const wanted = beside?.wanted ?? (replicas === "every-worker" ? workers.length : replicas);
    const ranked = rankWorkers(workers, deployment, counts);
    const ready = workers.filter((worker) => phaseOn(worker, deployment) === "ready").length;
    let placed = 0;
    for (const worker of ranked) {
      const phase = phaseOn(worker, deployment);
      const isMissing = phase === undefined || phase === "failed";
      if (placed < wanted) {
        // Wait for it, unless another worker has room.
        if (isMissing && worker.hasRoom?.(deployment) === false) continue;
        placed++;
        if (!isMissing) continue;
        actions.push({ type: "load", worker: worker.id, deployment });
        if (phase === undefined) counts.set(worker.id, (counts.get(worker.id) ?? 0) + 1);
      } else if (phase !== undefined && phase !== "unloading") {
        if (phase === "failed" && ready < wanted) continue;
        actions.push({ type: "unload", worker: worker.id, deployment });
      }
    }
  }
  const isWanted = (key: string) => deployments.has(key) || places.has(key);
  return [...actions, ...unwanted(isWanted, all)];
}

/** Replicas that leave with their workers. The only ready one stays while its worker drains. */
function leavers(deployment: string, all: readonly PlacementWorker[]): PlacementAction[] {
  const isReady = (worker: PlacementWorker) => phaseOn(worker, deployment) === "ready";
  const isServed = all.some((worker) => worker.leaving === undefined && isReady(worker));
  return all.flatMap((worker): PlacementAction[] => {
    const phase = phaseOn(worker, deployment);
    if (worker.leaving === undefined || phase === undefined || phase === "unloading") return [];
    if (worker.leaving === "draining" && phase === "ready" && !isServed) return [];
    return [{ type: "unload", worker: worker.id, deployment }];
  });
}

function scheduled(
  deployment: string,
  workers: readonly PlacementWorker[],
  places: ReadonlyMap<string, unknown>,
): PlacementAction[] {
  return workers.flatMap((worker): PlacementAction[] => {
    const phase = phaseOn(worker, deployment);
    const action = { worker: worker.id, deployment };
    if (places.has(worker.id)) {
      return phase === undefined || phase === "failed" ? [{ ...action, type: "load" }] : [];
    }
    return phase === undefined || phase === "unloading" ? [] : [{ ...action, type: "unload" }];
  });
}

/**
 * The more advanced replica is kept. A failed one ranks after an empty worker, and before one that
 * has failed more often.
 */
const keepOrder: Record<ReplicaPhase | "none", number> = {
  ready: 0,
  loading: 1,
  pulling: 2,
  none: 3,
  failed: 4,
  unloading: 5,
};

function rankWorkers(
  workers: readonly PlacementWorker[],
  deployment: string,
  counts: ReadonlyMap<string, number>,
): PlacementWorker[] {
  const order = (worker: PlacementWorker) => keepOrder[phaseOn(worker, deployment) ?? "none"];
  return workers.toSorted(
    (a, b) =>
      order(a) - order(b) ||
      failuresOn(a, deployment) - failuresOn(b, deployment) ||
      (counts.get(a.id) ?? 0) - (counts.get(b.id) ?? 0) ||
      b.memoryBytes - a.memoryBytes ||
      (a.id < b.id ? -1 : 1),
  );
}

function phaseOn(worker: PlacementWorker, deployment: string): ReplicaPhase | undefined {
  return replicaOn(worker, deployment)?.phase;
}

function failuresOn(worker: PlacementWorker, deployment: string): number {
  const replica = replicaOn(worker, deployment);
  return replica?.phase === "failed" ? (replica.failures ?? 0) : 0;
}

function replicaOn({ replicas }: PlacementWorker, deployment: string): PlacedReplica | undefined {
  return replicas.find((replica) => replica.deployment === deployment);
}

function unwanted(
  isWanted: (key: string) => boolean,
  workers: readonly PlacementWorker[],
): PlacementAction[] {
  return workers.flatMap(({ id, replicas }) =>
    replicas
      .filter(({ deployment, phase }) => !isWanted(deployment) && phase !== "unloading")
      .map(({ deployment }) => ({ type: "unload", worker: id, deployment })),
  );
}
