import { CLUSTER_SETTINGS } from "@heddle/contracts/api/settings";
import type { ReplicaStatus } from "@heddle/contracts/engine";
import { defaultMaxTasks } from "@heddle/contracts/task-places";
import type { NodeOffer } from "@heddle/control/jobs/records/records";
import { nodeScalars } from "@heddle/control/jobs/records/task-request";
import { deploymentOf } from "@heddle/control/jobs/scheduling/divided-models";
import { dividesGpus, wantedReplicas } from "@heddle/control/jobs/scheduling/replica-claims";
import { type NodeScalars, UNLIMITED_TASKS } from "@heddle/scheduler/model";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { diskOf, hostOf } from "./hosts.ts";
import type { NodeView, ResourceLimitView } from "./node-directory.ts";
import { scalarsHeld } from "./task-uses.ts";

const BYTES_PER_MIB = 2 ** 20;
const BYTES_PER_GB = 1e9;
/** The share of a machine's memory reserved for the system, the worker and other programs. */
const RESERVE_SHARE = 1 / 16;
/** The minimum of the reserve, unless that is more than half of the memory. */
const MIN_RESERVE_MIB = 512;
/** Memory of other processes is rounded to this, because each change of an offer is a log entry. */
const STEP_MIB = 256;
/** Bound on the reasons given for one deployment. */
const MAX_BLOCKERS = 8;
/** The memory of a parameter server without shards. */
const BARE_SERVER_BYTES = 256 * BYTES_PER_MIB;

type Amount = keyof NodeScalars;

/** A worker's share of its machine's resources. */
export interface MachineShare extends NodeScalars {
  /** The memory of its replicas, outside every share. */
  readonly replicasMib: number;
}

/** A worker of a machine, and what it keeps whatever its share. */
interface Sharer {
  readonly id: string;
  readonly kept: number;
}

/** A worker of the state that does not report to this master, and what its tasks hold. */
interface Silent {
  readonly offer: NodeOffer;
  readonly held: NodeScalars;
  /** It gets no new tasks. */
  readonly isLost: boolean;
}

/** The nodes that share an amount. */
interface Sharing {
  readonly views: readonly NodeView[];
  readonly silent: readonly Silent[];
}

/** An amount of a machine, without what is reserved. */
interface Pool extends Sharing {
  readonly amount: Amount;
  readonly size: number;
}

/**
 * The offer of each worker to jobs; `live` are the nodes that report to this master. The workers of
 * a machine or control group divide its capacity, less the reserve and the memory of replicas and
 * parameter servers.
 */
export function machineOffers(
  live: readonly NodeView[],
  control: ControlPlane,
): ReadonlyMap<string, MachineShare> {
  const silent = silentByHost(live, control);
  const offers = new Map<string, MachineShare>();
  for (const [host, views] of Map.groupBy(live, hostOf)) {
    const machine = { views, silent: silent.get(host) ?? [] };
    const shares = sharesOf(machine, control);
    for (const view of workersOf(machine)) {
      const share = shares.get(view.id) ?? reportedAmounts(view);
      const memoryMib = steadyMib(view.id, share.memoryMib, machine, control);
      offers.set(view.id, { ...share, memoryMib, replicasMib: steadyReplicasMib(view, control) });
    }
  }
  return offers;
}

/** Per amount, a worker's smallest share over its pools, and at most what it reports. */
function sharesOf(machine: Sharing, control: ControlPlane): Map<string, Record<Amount, number>> {
  const shares = new Map(workersOf(machine).map((view) => [view.id, reportedAmounts(view)]));
  for (const pool of poolsOf(machine, control)) {
    for (const [id, part] of divide(pool, control)) {
      const share = shares.get(id);
      if (share) share[pool.amount] = Math.min(share[pool.amount], part);
    }
  }
  return shares;
}

/**
 * Equal shares. A worker that keeps more than that gets what it keeps; the others divide the rest.
 */
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
    else {
      // Places may be offered twice for a time: a task needs more than a place.
      const offered = amount === "tasks" ? 0 : nodeScalars(offer)[amount];
      const kept = Math.max(offered, held[amount]);
      sharers.push({ id: offer.id, kept });
    }
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

/** Other processes' memory varies: an offer does not rise by what the next report may take back. */
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
  const isVarying = replicasMib(views, control) + serversMib(views) + silent.length > 0;
  const variesMib = isUnknown ? Number.POSITIVE_INFINITY : isVarying ? STEP_MIB : 0;
  return shareMib - knownMib <= variesMib ? knownMib : shareMib;
}

/** It does not fall by what the next report may add. */
function steadyReplicasMib(view: NodeView, control: ControlPlane): number {
  const knownMib = control.state.nodes.get(view.id)?.offer.replicasMib ?? 0;
  const heldMib = replicasMib([view], control);
  return heldMib > 0 && heldMib === knownMib - STEP_MIB ? knownMib : heldMib;
}

/** What a worker reports; its memory is its machine's. */
function reportedAmounts({ offer, cpuCount }: NodeView): Record<Amount, number> {
  return {
    memoryMib: Number.MAX_SAFE_INTEGER,
    cpuMilli: cpuCount * 1_000,
    localSsdGb: Math.floor((offer?.localSsdBytes ?? 0) / BYTES_PER_GB),
    ioOperationsPerSec: offer?.ioOperationsPerSec ?? 0,
    networkMbps: offer?.networkMbps ?? 0,
    tasks: offer?.maxTasks ?? UNLIMITED_TASKS,
  };
}

function poolsOf(machine: Sharing, control: ControlPlane): Pool[] {
  const { silent } = machine;
  const workers = workersOf(machine);
  const memory = memoryLimitsOf(machine).map((limit): Pool => {
    return { ...limit, amount: "memoryMib", size: jobsMib(limit, control) };
  });
  const pools: Pool[] = [
    ...memory,
    { ...machine, amount: "cpuMilli", size: mostOf("cpuMilli", workers) },
    { ...machine, amount: "networkMbps", size: mostOf("networkMbps", workers) },
  ];
  for (const views of Map.groupBy(workers, diskOf).values()) {
    // The disk of a silent worker is unknown.
    for (const amount of ["localSsdGb", "ioOperationsPerSec"] as const) {
      pools.push({ views, silent, amount, size: mostOf(amount, views) });
    }
  }
  return [...pools, placesOf(machine), ...limitedCores(machine)];
}

/**
 * The machine's places for tasks, without the workers whose operator chose their number. The choice
 * of a silent worker is unknown: it counts as a sharer.
 */
function placesOf({ views, silent }: Sharing): Pool {
  const sharers = workersOf({ views }).filter(({ offer }) => !offer?.isMaxTasksChosen);
  const size = defaultMaxTasks(Math.max(0, ...views.map(({ cpuCount }) => cpuCount)));
  return { views: sharers, silent, amount: "tasks", size };
}

/** What a machine, a control group or an operator allows the nodes in it. */
interface Limited extends Sharing {
  readonly limit: ResourceLimitView;
}

/** The limits of the machine's memory: its own, and those of groups of its nodes. */
function memoryLimitsOf(machine: Sharing): Limited[] {
  const memoryBytes = Math.min(...machine.views.map((view) => view.memoryBytes));
  const whole = { ...machine, limit: { id: "", memoryBytes, cpuMilli: 0 } };
  return [whole, ...limitsIn(machine).filter(({ limit }) => limit.memoryBytes > 0)];
}

function limitedCores(machine: Sharing): Pool[] {
  return limitsIn(machine)
    .filter(({ limit }) => limit.cpuMilli > 0)
    .map(({ limit, ...inside }) => ({ ...inside, amount: "cpuMilli", size: limit.cpuMilli }));
}

/** The control groups that limit memory or cores; the workers in one divide its limit. */
function limitsIn({ views, silent }: Sharing): Limited[] {
  const all = views.flatMap(({ limits = [] }) => limits.map((limit) => [limit.id, limit] as const));
  return [...new Map(all).values()].map((limit) => ({
    limit,
    views: views.filter(({ limits = [] }) => limits.some(({ id }) => id === limit.id)),
    silent: silent.filter(({ offer }) => offer.limitIds?.includes(limit.id)),
  }));
}

function workersOf({ views }: Pick<Sharing, "views">): NodeView[] {
  return views.filter(({ offer }) => offer !== undefined);
}

function mostOf(amount: Amount, workers: readonly NodeView[]): number {
  return Math.max(0, ...workers.map((view) => reportedAmounts(view)[amount]));
}

/** Keyed by machine: silent workers of the replicated state whose tasks or replicas may run. */
function silentByHost(live: readonly NodeView[], control: ControlPlane): Map<string, Silent[]> {
  const ids = new Set(live.map(({ id }) => id));
  const silent = new Map<string, Silent[]>();
  for (const { offer, state, fencedAtMs } of control.state.nodes.values()) {
    const isLost = state === "lost";
    const isEnded = isLost && fencedAtMs === undefined && !offer.replicasMib;
    if (ids.has(offer.id) || offer.hostId === undefined || isEnded) continue;
    const host = hostOf({ id: offer.id, hostId: offer.hostId });
    const held = heldOn(control, offer.id);
    silent.set(host, [...(silent.get(host) ?? []), { offer, held, isLost }]);
  }
  return silent;
}

/** The memory that remains for jobs after the reserve, replicas and parameter servers. */
function jobsMib(limited: Limited, control: ControlPlane): number {
  const { views } = limited;
  const othersMib =
    replicasMib(views, control) + serversMib(views) + silentReplicasMib(limited, control);
  return Math.max(0, usableMib(limited) - othersMib);
}

/** The memory without the reserve. */
function usableMib({ limit: { memoryBytes, isOffer } }: Limited): number {
  const totalMib = memoryBytes / BYTES_PER_MIB;
  const leastMib = Math.min(MIN_RESERVE_MIB, totalMib / 2);
  return Math.floor(isOffer ? totalMib : totalMib - Math.max(totalMib * RESERVE_SHARE, leastMib));
}

function replicasMib(views: readonly NodeView[], control: ControlPlane): number {
  return inSteps(replicasBytes(views, control, () => true));
}

function replicasBytes(
  views: readonly NodeView[],
  control: ControlPlane,
  counts: (deployment: string) => boolean,
): number {
  const sizes = views.flatMap((view) =>
    view.replicas
      .filter(({ deployment }) => counts(deployment))
      .map((each) => replicaBytes(view, each, control)),
  );
  return sizes.reduce((sum, bytes) => sum + bytes, 0);
}

/** What it uses, or will use once it is loaded. */
function replicaBytes(
  view: NodeView,
  { deployment, phase, load, stage }: ReplicaStatus,
  control: ControlPlane,
): number {
  if (phase === "failed") return 0;
  const isComing = phase === "pulling" || phase === "loading";
  const onGpus = dividesGpus(control.state, deploymentOf(deployment));
  const ofStage = onGpus ? 0 : stage?.memoryBytes;
  const needed = () => ofStage ?? neededBytes(view, deployment, control);
  return Math.max(load.residentBytes, isComing ? needed() : 0);
}

/**
 * The minimum memory of a replica: its weights. 0 if their size is unknown or a GPU may hold them.
 */
function neededBytes({ gpus }: NodeView, deployment: string, { state }: ControlPlane): number {
  const spec = state.deployments.get(deployment)?.spec;
  const mayUseGpu = spec?.options.device !== "cpu" && gpus.some(({ simulated }) => !simulated);
  return mayUseGpu ? 0 : (spec?.weights?.sizeBytes ?? 0);
}

/** The nodes on the same machine as a node. */
function machinesOf(live: readonly NodeView[], control: ControlPlane): (view: NodeView) => Sharing {
  const byHost = Map.groupBy(live, hostOf);
  const silent = silentByHost(live, control);
  return (view) => {
    const host = hostOf(view);
    return { views: byHost.get(host) ?? [], silent: silent.get(host) ?? [] };
  };
}

/** Why a worker has no memory for a replica of a deployment; undefined if it has. */
export type LoadBlocker = (nodeId: string, deployment: string) => string | undefined;

/** Memory of a whole replica of a deployment, where a worker has said it. */
type WholeBytes = (deployment: string) => number | undefined;

/** Compares what replicas need with the memory that tasks and other replicas leave. */
export function loadBlocker(
  live: readonly NodeView[],
  control: ControlPlane,
  wholeBytes: WholeBytes,
): LoadBlocker {
  const byId = new Map(live.map((view) => [view.id, view]));
  const machineOf = machinesOf(live, control);
  return (nodeId, deployment) => {
    const view = byId.get(nodeId);
    const weights = view && neededBytes(view, deployment, control);
    if (!weights) return undefined;
    const neededMib = Math.max(weights, wholeBytes(deployment) ?? 0) / BYTES_PER_MIB;
    const machine = machineOf(view);
    const pools = poolsOf(machine, control)
      .filter(({ amount, views }) => amount === "memoryMib" && views.includes(view))
      .map((pool) => ({ heldMib: heldIn(pool, control), size: pool.size }));
    // Without tasks on the machine, the system pages a file that is larger than the memory.
    const short = pools.find(({ heldMib, size }) => heldMib > 0 && size - heldMib < neededMib);
    if (!short) return undefined;
    const freeMib = Math.max(0, short.size - short.heldMib);
    return `${view.name} has ${freeMib} MiB of memory beside what jobs and other models hold, and ${deployment} needs ${Math.ceil(neededMib)} MiB: end jobs there, or add a worker`;
  };
}

/**
 * Bytes that a worker has for a replica of a model, beside what jobs and other models hold. Workers
 * of one machine divide what is free.
 */
export function modelMemory(
  live: readonly NodeView[],
  control: ControlPlane,
): (nodeId: string, isOwn: (deployment: string) => boolean) => number | undefined {
  const byId = new Map(live.map((view) => [view.id, view]));
  const machineOf = machinesOf(live, control);
  return (nodeId, isOwn) => {
    const view = byId.get(nodeId);
    // What it offers is known shortly after it has attached.
    if (!view?.offer) return undefined;
    const parts = memoryLimitsOf(machineOf(view))
      .filter(({ views }) => views.includes(view))
      .map((limited) => {
        const { views } = limited;
        const heldMib = heldIn({ ...limited, amount: "memoryMib" }, control);
        const othersMib = serversMib(views) + silentReplicasMib(limited, control);
        const replicas = replicasBytes(views, control, (key) => !isOwn(key)) / BYTES_PER_MIB;
        const freeMib = usableMib(limited) - heldMib - othersMib - replicas;
        return Math.max(0, freeMib) / workersOf(limited).length;
      });
    return Math.floor(Math.min(...parts) * BYTES_PER_MIB);
  };
}

/** The workers that a deployment's next replica may be waiting for. */
export function loadBlockers(
  deployment: string,
  live: readonly NodeView[],
  control: ControlPlane,
  wholeBytes: WholeBytes,
): string[] {
  const { state } = control;
  const { replicas: wanted = 0, spec } = state.deployments.get(deployment) ?? {};
  if (spec?.engine === "llama" && spec.placement?.mode === "sharded") return [];
  // The scheduler reports its own reasons.
  if (wantedReplicas(state).has(deployment)) return [];
  const runs = ({ replicas }: NodeView) =>
    replicas.some((each) => each.deployment === deployment && each.phase !== "failed");
  const workers = live.filter(({ kind }) => kind === "worker");
  const running = workers.filter(runs).length;
  if (wanted !== "every-worker" && running >= wanted) return [];
  const blocker = loadBlocker(live, control, wholeBytes);
  return workers
    .filter((view) => !runs(view))
    .flatMap(({ id }) => blocker(id, deployment) ?? [])
    .slice(0, MAX_BLOCKERS);
}

/** What the tasks of all workers of the pool hold of it. */
function heldIn({ amount, views, silent }: Omit<Pool, "size">, control: ControlPlane): number {
  const live = workersOf({ views }).map(({ id }) => heldOn(control, id));
  return [...live, ...silent.map(({ held }) => held)].reduce((sum, held) => sum + held[amount], 0);
}

/** The memory of parameter servers beyond an empty one, which the reserve covers. */
function serversMib(views: readonly NodeView[]): number {
  const sizes = views.map(({ residentBytes = 0 }) => residentBytes);
  return sizes.reduce((sum, bytes) => sum + inSteps(Math.max(0, bytes - BARE_SERVER_BYTES)), 0);
}

/**
 * What replicas of silent workers may still use: their last report. Lost workers' replicas may have
 * ended, so they count at most what the machine uses beyond the known.
 */
function silentReplicasMib({ views, silent }: Sharing, control: ControlPlane): number {
  const heldMib = (isLost: boolean) =>
    silent
      .filter((each) => each.isLost === isLost)
      .reduce((sum, { offer }) => sum + (offer.replicasMib ?? 0), 0);
  const usedBytes = Math.max(0, ...views.map(({ memoryUsedBytes }) => memoryUsedBytes));
  const unknownMib = Math.max(
    0,
    inSteps(usedBytes) - replicasMib(views, control) - serversMib(views),
  );
  return heldMib(false) + Math.min(heldMib(true), unknownMib);
}

function inSteps(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_MIB / STEP_MIB) * STEP_MIB;
}

/** What the node must offer for its present tasks. */
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
