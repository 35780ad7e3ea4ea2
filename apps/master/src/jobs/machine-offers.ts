import { CLUSTER_SETTINGS } from "@heddle/contracts/settings";
import type { NodeOffer } from "@heddle/control/jobs/records";
import type { NodeScalars } from "@heddle/scheduler/model";
import { diskOf, hostOf } from "../operations/hosts.ts";
import type { ControlPlane, NodeView } from "../ports.ts";
import { scalarsHeld } from "./task-uses.ts";

const BYTES_PER_MIB = 2 ** 20;
const BYTES_PER_GB = 1e9;
/** The share of a machine's memory that the system, the worker and other programs keep. */
const RESERVE_SHARE = 1 / 16;
/** The reserve is at least this, where that is at most half of the memory. */
const MIN_RESERVE_MIB = 512;
/** Memory of other processes counts in such steps: each change of an offer is an entry of the log. */
const STEP_MIB = 256;
/** A parameter server without shards. */
const BARE_SERVER_BYTES = 256 * BYTES_PER_MIB;

type Amount = keyof NodeScalars;

/** A worker's part of what belongs to its machine. */
export interface MachineShare extends NodeScalars {
  /** The memory of its replicas, which is in no part. */
  readonly replicasMib: number;
}

/** A worker of a machine, and what it keeps whatever its share is. */
interface Sharer {
  readonly id: string;
  readonly kept: number;
}

/** A worker of the state that this master does not hear, and what its tasks hold. */
interface Silent {
  readonly offer: NodeOffer;
  readonly held: NodeScalars;
  /** It gets no new tasks. */
  readonly isLost: boolean;
}

/** The nodes that have an amount together. */
interface Sharing {
  readonly views: readonly NodeView[];
  readonly silent: readonly Silent[];
}

/** An amount of a machine, without what is not for jobs. */
interface Pool extends Sharing {
  readonly amount: Amount;
  readonly size: number;
}

/**
 * What each worker offers to jobs of its machine. The workers of a machine divide what it has, less the reserve and
 * the memory of replicas and parameter servers; so do those of a control group. `heard` are the nodes that this master
 * hears.
 */
export function machineOffers(
  heard: readonly NodeView[],
  control: ControlPlane,
): ReadonlyMap<string, MachineShare> {
  const silent = silentByHost(heard, control);
  const offers = new Map<string, MachineShare>();
  for (const [host, views] of Map.groupBy(heard, hostOf)) {
    const machine = { views, silent: silent.get(host) ?? [] };
    const shares = sharesOf(machine, control);
    for (const view of workersOf(machine)) {
      const share = shares.get(view.id) ?? told(view);
      const memoryMib = steadyMib(view.id, share.memoryMib, machine, control);
      offers.set(view.id, { ...share, memoryMib, replicasMib: steadyReplicasMib(view, control) });
    }
  }
  return offers;
}

/** Of each amount the least part that a worker has in a pool of it, and no more than it says that it has. */
function sharesOf(machine: Sharing, control: ControlPlane): Map<string, Record<Amount, number>> {
  const shares = new Map(workersOf(machine).map((view) => [view.id, told(view)]));
  for (const pool of poolsOf(machine)) {
    for (const [id, part] of divide(pool, control)) {
      const share = shares.get(id);
      if (share) share[pool.amount] = Math.min(share[pool.amount], part);
    }
  }
  return shares;
}

/** Equal parts. A worker that keeps more than that is given what it keeps, and the others the rest. */
function divide({ amount, size, views, silent }: Pool, control: ControlPlane): Map<string, number> {
  const workers = workersOf({ views });
  const isShared = workers.length + silent.length > 1;
  const sharers: Sharer[] = workers.map(({ id }) => ({
    id,
    kept: isShared ? heldOn(control, id)[amount] : 0,
  }));
  let left = size;
  for (const { offer, held, isLost } of silent) {
    if (isLost) left -= held[amount];
    else sharers.push({ id: offer.id, kept: Math.max(offer[amount], held[amount]) });
  }
  const parts = new Map<string, number>();
  const largestFirst = sharers.sort((a, b) => b.kept - a.kept || (a.id < b.id ? -1 : 1));
  for (const [at, { id, kept }] of largestFirst.entries()) {
    const equal = Math.floor(Math.max(0, left) / (largestFirst.length - at));
    const part = Math.max(kept, equal);
    parts.set(id, part);
    left -= part;
  }
  return parts;
}

/** The memory of other processes varies: an offer does not rise by what the next report may take back. */
function steadyMib(
  id: string,
  shareMib: number,
  { views, silent }: Sharing,
  control: ControlPlane,
): number {
  const knownMib = control.state.nodes.get(id)?.offer.memoryMib;
  if (knownMib === undefined || shareMib <= knownMib) return shareMib;
  // The memory of silent workers, and of those before their first heartbeat, is unknown.
  const isUnknown =
    silent.some(({ isLost }) => !isLost) ||
    views.some((view) => view.lastSeenMs <= view.attachedAtMs);
  const isVarying = replicasMib(views) + serversMib(views) + silent.length > 0;
  const variesMib = isUnknown ? Number.POSITIVE_INFINITY : isVarying ? STEP_MIB : 0;
  return shareMib - knownMib <= variesMib ? knownMib : shareMib;
}

/** It does not fall by what the next report may add. */
function steadyReplicasMib(view: NodeView, control: ControlPlane): number {
  const knownMib = control.state.nodes.get(view.id)?.offer.replicasMib ?? 0;
  const heldMib = replicasMib([view]);
  return heldMib > 0 && heldMib === knownMib - STEP_MIB ? knownMib : heldMib;
}

/** What a worker says that it has; its memory is its machine's. */
function told({ offer, cpuCount }: NodeView): Record<Amount, number> {
  return {
    memoryMib: Number.MAX_SAFE_INTEGER,
    cpuMilli: cpuCount * 1_000,
    localSsdGb: Math.floor((offer?.localSsdBytes ?? 0) / BYTES_PER_GB),
    ioOperationsPerSec: offer?.ioOperationsPerSec ?? 0,
    networkMbps: offer?.networkMbps ?? 0,
  };
}

function poolsOf(machine: Sharing): Pool[] {
  const { views, silent } = machine;
  const workers = workersOf(machine);
  const totalBytes = Math.min(...views.map(({ memoryBytes }) => memoryBytes));
  const pools: Pool[] = [
    { ...machine, amount: "memoryMib", size: jobsMib(totalBytes, machine) },
    { ...machine, amount: "cpuMilli", size: mostOf("cpuMilli", workers) },
    { ...machine, amount: "networkMbps", size: mostOf("networkMbps", workers) },
  ];
  for (const views of Map.groupBy(workers, diskOf).values()) {
    // On which disk of their machine silent workers are is not known.
    for (const amount of ["localSsdGb", "ioOperationsPerSec"] as const) {
      pools.push({ views, silent, amount, size: mostOf(amount, views) });
    }
  }
  return [...pools, ...limitedPools(machine)];
}

/** Those of the control groups that bound memory or cores: the workers in one divide what it may have. */
function limitedPools({ views, silent }: Sharing): Pool[] {
  const all = views.flatMap(({ limits = [] }) => limits.map((limit) => [limit.id, limit] as const));
  return [...new Map(all).values()].flatMap(({ id, memoryBytes, cpuMilli }) => {
    const inside: Sharing = {
      views: views.filter(({ limits = [] }) => limits.some((limit) => limit.id === id)),
      silent: silent.filter(({ offer }) => offer.limitIds?.includes(id)),
    };
    const pools: Pool[] = [];
    if (memoryBytes > 0) {
      pools.push({ ...inside, amount: "memoryMib", size: jobsMib(memoryBytes, inside) });
    }
    if (cpuMilli > 0) pools.push({ ...inside, amount: "cpuMilli", size: cpuMilli });
    return pools;
  });
}

function workersOf({ views }: Pick<Sharing, "views">): NodeView[] {
  return views.filter(({ offer }) => offer !== undefined);
}

function mostOf(amount: Amount, workers: readonly NodeView[]): number {
  return Math.max(0, ...workers.map((view) => told(view)[amount]));
}

/** By machine the workers of the replicated state whose tasks or replicas may run and that are not heard. */
function silentByHost(heard: readonly NodeView[], control: ControlPlane): Map<string, Silent[]> {
  const ids = new Set(heard.map(({ id }) => id));
  const silent = new Map<string, Silent[]>();
  for (const { offer, state, fencedAtMs } of control.state.nodes.values()) {
    const isLost = state === "lost";
    const isOver = isLost && fencedAtMs === undefined && !offer.replicasMib;
    if (ids.has(offer.id) || offer.hostId === undefined || isOver) continue;
    const host = hostOf({ id: offer.id, hostId: offer.hostId });
    const held = heldOn(control, offer.id);
    silent.set(host, [...(silent.get(host) ?? []), { offer, held, isLost }]);
  }
  return silent;
}

/** Of so much memory what is left for jobs beside the reserve, replicas and parameter servers. */
function jobsMib(totalBytes: number, sharing: Sharing): number {
  const { views } = sharing;
  const totalMib = totalBytes / BYTES_PER_MIB;
  const leastMib = Math.min(MIN_RESERVE_MIB, totalMib / 2);
  const usableMib = Math.floor(totalMib - Math.max(totalMib * RESERVE_SHARE, leastMib));
  const othersMib = replicasMib(views) + serversMib(views) + silentReplicasMib(sharing);
  return Math.max(0, usableMib - othersMib);
}

function replicasMib(views: readonly NodeView[]): number {
  const running = views
    .flatMap(({ replicas }) => replicas)
    .filter(({ phase }) => phase !== "failed");
  return inSteps(running.reduce((sum, { load }) => sum + load.residentBytes, 0));
}

/** The memory of parameter servers; the reserve has room for what one needs without shards. */
function serversMib(views: readonly NodeView[]): number {
  const sizes = views.map(({ residentBytes = 0 }) => residentBytes);
  return sizes.reduce((sum, bytes) => sum + inSteps(Math.max(0, bytes - BARE_SERVER_BYTES)), 0);
}

/**
 * What replicas of silent workers may still hold: what they held when they were last heard of. Of those of lost workers,
 * which may have ended with them, no more than the machine is seen to use beside what is known.
 */
function silentReplicasMib({ views, silent }: Sharing): number {
  const heldMib = (isLost: boolean) =>
    silent
      .filter((each) => each.isLost === isLost)
      .reduce((sum, { offer }) => sum + (offer.replicasMib ?? 0), 0);
  const usedBytes = Math.max(0, ...views.map(({ memoryUsedBytes }) => memoryUsedBytes));
  const unknownMib = Math.max(0, inSteps(usedBytes) - replicasMib(views) - serversMib(views));
  return heldMib(false) + Math.min(heldMib(true), unknownMib);
}

function inSteps(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_MIB / STEP_MIB) * STEP_MIB;
}

/** What the node must offer for the tasks that it has. */
function heldOn(control: ControlPlane, nodeId: string): NodeScalars {
  const ratio =
    control.state.settings.get("overcommit_ratio")?.value ??
    CLUSTER_SETTINGS.overcommit_ratio.default;
  const held = scalarsHeld(control, nodeId);
  return {
    ...held,
    memoryMib: Math.ceil(held.memoryMib / ratio),
    cpuMilli: Math.ceil(held.cpuMilli / ratio),
  };
}
