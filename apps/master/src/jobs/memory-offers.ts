import { CLUSTER_SETTINGS } from "@heddle/contracts/settings";
import { hostOf } from "../operations/hosts.ts";
import type { ControlPlane, NodeView } from "../ports.ts";
import { taskUses } from "./task-uses.ts";

const BYTES_PER_MIB = 2 ** 20;
/** The share of a machine's memory that the system, the worker and other programs keep. */
const RESERVE_SHARE = 1 / 16;
/** The reserve is at least this, where that is at most half of the memory. */
const MIN_RESERVE_MIB = 512;
/** Memory of replicas counts in such steps: each change of an offer is an entry of the log. */
const REPLICA_STEP_MIB = 256;

/** A worker of a machine, and the memory that it keeps whatever its share is. */
interface Sharer {
  readonly id: string;
  readonly keptMib: number;
  /** It gets no new tasks. */
  readonly isLost?: boolean;
}

/**
 * The memory in MiB that each worker offers to jobs. The workers of a machine divide its memory, less
 * the reserve and what replicas hold on it. `heard` are the workers that this master hears.
 */
export function memoryOffers(
  heard: readonly NodeView[],
  control: ControlPlane,
): ReadonlyMap<string, number> {
  const silent = silentSharers(heard, control);
  const offers = new Map<string, number>();
  for (const [host, views] of Map.groupBy(heard, hostOf)) {
    const workers = views.filter(({ offer }) => offer !== undefined);
    const { lost = [], others = [] } = Object.groupBy(silent.get(host) ?? [], ({ isLost }) =>
      isLost ? "lost" : "others",
    );
    const replicasMib = replicaMib(views);
    const budgetMib = Math.max(0, usableMib(views) - replicasMib - keptBy(lost));
    const isShared = workers.length + others.length + lost.length > 1;
    const kept = workers.map(({ id }) => ({ id, keptMib: isShared ? heldMib(control, id) : 0 }));
    const shares = divide(budgetMib, [...kept, ...others]);
    for (const { id } of workers) {
      const knownMib = control.state.nodes.get(id)?.offer.memoryMib;
      const shareMib = shares.get(id) ?? 0;
      // The memory of replicas varies. That of silent workers, and of those before their first heartbeat, is unknown.
      const isUnknown =
        others.length > 0 || views.some((view) => view.lastSeenMs <= view.attachedAtMs);
      const variesMib = isUnknown
        ? Number.POSITIVE_INFINITY
        : replicasMib > 0
          ? REPLICA_STEP_MIB
          : 0;
      const rises = knownMib !== undefined && shareMib > knownMib;
      offers.set(id, rises && shareMib - knownMib <= variesMib ? knownMib : shareMib);
    }
  }
  return offers;
}

/** By machine the workers of the replicated state whose tasks may run and that are not heard. */
function silentSharers(heard: readonly NodeView[], control: ControlPlane): Map<string, Sharer[]> {
  const ids = new Set(heard.map(({ id }) => id));
  const silent = new Map<string, Sharer[]>();
  for (const { offer, state, fencedAtMs } of control.state.nodes.values()) {
    const isLost = state === "lost";
    const isOver = isLost && fencedAtMs === undefined;
    if (ids.has(offer.id) || offer.hostId === undefined || isOver) continue;
    const keptMib = Math.max(isLost ? 0 : offer.memoryMib, heldMib(control, offer.id));
    const host = hostOf({ id: offer.id, hostId: offer.hostId });
    silent.set(host, [...(silent.get(host) ?? []), { id: offer.id, keptMib, isLost }]);
  }
  return silent;
}

function keptBy(sharers: readonly Sharer[]): number {
  return sharers.reduce((sum, { keptMib }) => sum + keptMib, 0);
}

/** Equal shares. A worker that keeps more than that is given what it keeps, and the others the rest. */
function divide(budgetMib: number, sharers: readonly Sharer[]): Map<string, number> {
  const shares = new Map<string, number>();
  let leftMib = budgetMib;
  const largestFirst = [...sharers].sort((a, b) => b.keptMib - a.keptMib || (a.id < b.id ? -1 : 1));
  for (const [at, { id, keptMib }] of largestFirst.entries()) {
    const equalMib = Math.floor(Math.max(0, leftMib) / (largestFirst.length - at));
    const shareMib = Math.max(keptMib, equalMib);
    shares.set(id, shareMib);
    leftMib -= shareMib;
  }
  return shares;
}

/** The memory of the machine less the reserve. */
function usableMib(views: readonly NodeView[]): number {
  const totalMib = Math.min(...views.map(({ memoryBytes }) => memoryBytes)) / BYTES_PER_MIB;
  const leastMib = Math.min(MIN_RESERVE_MIB, totalMib / 2);
  return Math.floor(totalMib - Math.max(totalMib * RESERVE_SHARE, leastMib));
}

function replicaMib(views: readonly NodeView[]): number {
  const running = views
    .flatMap(({ replicas }) => replicas)
    .filter(({ phase }) => phase !== "failed");
  const bytes = running.reduce((sum, { load }) => sum + load.residentBytes, 0);
  return Math.ceil(bytes / BYTES_PER_MIB / REPLICA_STEP_MIB) * REPLICA_STEP_MIB;
}

/** What the node must offer for the tasks that it has. */
function heldMib(control: ControlPlane, nodeId: string): number {
  const ratio =
    control.state.settings.get("overcommit_ratio")?.value ??
    CLUSTER_SETTINGS.overcommit_ratio.default;
  const bytes = taskUses(control, nodeId).reduce((sum, use) => sum + use.memory_bytes, 0);
  return Math.ceil(bytes / BYTES_PER_MIB / ratio);
}
