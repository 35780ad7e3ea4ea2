import type { Steps } from "@heddle/base/async/steps";
import { countAway, countRejected, NODE_FILTERS, type NodeFilter } from "../cluster/eligibility.ts";
import type { Ledger } from "../cluster/ledger.ts";
import { sharedBlockers } from "../cluster/shared-amounts.ts";
import { SCALARS } from "../cluster/units.ts";
import type { Blocker, NodeSnapshot, PendingReason } from "../model.ts";
import { type GangRequest, nodesFit } from "../placement/gang.ts";
import { blocker } from "./admission.ts";

const REASON_OF_SCALAR: Readonly<Record<(typeof SCALARS)[number], PendingReason>> = {
  cpuMilli: "InsufficientCpu",
  memoryMib: "InsufficientMemory",
  localSsdGb: "InsufficientLocalSsd",
  ioOperationsPerSec: "InsufficientIo",
  networkMbps: "InsufficientNetwork",
  tasks: "InsufficientTaskPlaces",
};

/** The names in blockers, with units. */
const NAME_OF_SCALAR: Readonly<Record<(typeof SCALARS)[number], string>> = {
  cpuMilli: "cpu_milli",
  memoryMib: "memory_mib",
  localSsdGb: "local_ssd_gb",
  ioOperationsPerSec: "io_operations_per_sec",
  networkMbps: "network_mbps",
  tasks: "tasks",
};

const REASON_OF_FILTER: Readonly<Record<NodeFilter, PendingReason>> = {
  lost: "NodesLost",
  state: "NodesDraining",
  taint: "AffinityNoMatch",
  executor: "ExecutorUnavailable",
  algorithm: "AlgorithmUnavailable",
  profile: "AffinityNoMatch",
  feature: "AffinityNoMatch",
  gpu: "InsufficientGpu",
  gpu_index: "InsufficientGpu",
  gpu_type: "InsufficientGpu",
  gpu_memory: "InsufficientGpu",
  affinity: "AffinityNoMatch",
  anti_affinity: "AffinityNoMatch",
  infiniband: "TopologyUnavailable",
  plugin: "AffinityNoMatch",
};

/** Nodes whose labels one step reads. */
const NODES_PER_STEP = 1_024;

/** The states in which a node accepts no task, by the reason that is shown. */
const AWAY: readonly (readonly [PendingReason, readonly NodeSnapshot["state"][]])[] = [
  ["NodesLost", ["lost"]],
  ["NodesDraining", ["draining", "drained"]],
];

/**
 * Every reason why the gang does not fit on what is free; empty if it fits. `capacity` is the same
 * cluster without jobs and gives the limits.
 */
export function* capacityBlockers(
  ledger: Ledger,
  capacity: Ledger,
  gang: GangRequest,
): Steps<Blocker[]> {
  const shared = sharedBlockers(ledger.shared, capacity.shared, gang.shared);
  if (nodesFit(ledger, gang)) return shared;
  yield;
  return [...shared, ...(yield* nodeBlockers(ledger, capacity, gang))];
}

function* nodeBlockers(ledger: Ledger, capacity: Ledger, gang: GangRequest): Steps<Blocker[]> {
  const { shape, tasks } = gang;
  const eligible = [...ledger.nodes.keys()].filter((node) => shape.eligible[node] === 1);
  if (eligible.length === 0) return yield* filterBlockers(ledger, gang);
  const blockers = yield* shortages(ledger, capacity, gang, eligible);
  if (blockers.length === 0)
    blockers.push(...(yield* shapeBlockers(ledger, capacity, gang, eligible)));
  yield;
  for (const [reason, states] of AWAY) {
    const away = countAway(ledger.roster, shape, states);
    if (away === 0) continue;
    blockers.push(blocker(reason, "nodes", tasks, eligible.length, eligible.length + away));
  }
  return blockers;
}

/** No node is eligible: one blocker for each filter that rejected some. */
function* filterBlockers({ roster }: Ledger, gang: GangRequest): Steps<Blocker[]> {
  const nodes = roster.present();
  const rejected = countRejected(roster, gang.shape);
  const blockers: Blocker[] = [];
  for (const filter of NODE_FILTERS) {
    if (!rejected.has(filter)) continue;
    blockers.push({
      ...blocker(REASON_OF_FILTER[filter], filter, gang.tasks, 0, nodes.length),
      rejected: rejected.get(filter),
      ...(yield* offersOf(nodes, gang, filter)),
    });
  }
  if (blockers.length > 0) return blockers;
  return [blocker("NoNodes", "nodes", gang.tasks, 0, 0)];
}

/** The executor, algorithm, profile or feature that is missing, and those that the nodes offer. */
function* offersOf(
  nodes: readonly NodeSnapshot[],
  { shape }: GangRequest,
  filter: NodeFilter,
): Steps<Pick<Blocker, "wanted" | "offered">> {
  const needed = shape.request.offers?.find(({ kind }) => kind === filter);
  if (!needed) return {};
  const { name: wanted, labelPrefix: prefix } = needed;
  const offered = new Set<string>();
  for (const [at, { labels }] of nodes.entries()) {
    if (at % NODES_PER_STEP === NODES_PER_STEP - 1) yield;
    for (const key of Object.keys(labels)) {
      if (key.startsWith(prefix)) offered.add(key.slice(prefix.length));
    }
  }
  return { wanted, offered: [...offered].sort() };
}

/** An amount that a task of the gang asks for. */
interface AskedAmount {
  readonly reason: PendingReason;
  readonly resource: string;
  readonly each: number;
  readonly freeAt: (ledger: Ledger, node: number) => number;
  /** The tasks for which the node has enough of this amount. */
  readonly copiesAt: (ledger: Ledger, node: number) => number;
}

function askedAmounts({ shape }: GangRequest): AskedAmount[] {
  const gpus: AskedAmount = {
    reason: "InsufficientGpu",
    resource: "gpu_milli",
    each: shape.devices * shape.milli,
    freeAt: (ledger, node) => ledger.gpuFreeFor(node, shape),
    copiesAt: (ledger, node) => ledger.deviceCopies(node, shape),
  };
  const scalars = SCALARS.map((name, column): AskedAmount => {
    const each = shape.scalars[column]!;
    const freeAt = ({ scalarFree }: Ledger, node: number) =>
      Math.max(0, scalarFree[node * SCALARS.length + column]!);
    return {
      reason: REASON_OF_SCALAR[name],
      resource: NAME_OF_SCALAR[name],
      each,
      freeAt,
      copiesAt: (ledger, node) => Math.floor(freeAt(ledger, node) / each),
    };
  });
  return [gpus, ...scalars].filter(({ each }) => each > 0);
}

/** The resources of which all eligible nodes together have too little free. */
function* shortages(
  ledger: Ledger,
  capacity: Ledger,
  gang: GangRequest,
  eligible: readonly number[],
): Steps<Blocker[]> {
  const blockers: Blocker[] = [];
  for (const { reason, resource, each, freeAt } of askedAmounts(gang)) {
    yield;
    const free = sum(eligible, (node) => freeAt(ledger, node));
    if (gang.tasks * each <= free) continue;
    const limit = sum(eligible, (node) => freeAt(capacity, node));
    blockers.push(blocker(reason, resource, gang.tasks * each, free, limit));
  }
  return blockers;
}

/** The sum is sufficient, but not where one task or one domain needs it. */
function* shapeBlockers(
  ledger: Ledger,
  capacity: Ledger,
  gang: GangRequest,
  eligible: readonly number[],
): Steps<Blocker[]> {
  const { shape, tasks } = gang;
  const anywhere = { ...gang, sameRack: false, shape: withoutFabric(gang) };
  if (nodesFit(ledger, anywhere)) {
    const domain = gang.sameRack ? "gpu_milli_in_one_rack" : "gpu_milli_on_one_fabric";
    const wanted = tasks * shape.devices * shape.milli;
    const free = sum(eligible, (node) => ledger.gpuFreeFor(node, shape));
    const limit = sum(eligible, (node) => capacity.gpuFreeFor(node, shape));
    return [blocker("TopologyUnavailable", domain, wanted, free, limit)];
  }
  return yield* fragmentedBlockers(ledger, capacity, gang, eligible);
}

/** The amounts that alone have too few places for the gang, else those that limit some node. */
function* fragmentedBlockers(
  ledger: Ledger,
  capacity: Ledger,
  gang: GangRequest,
  eligible: readonly number[],
): Steps<Blocker[]> {
  const { tasks } = gang;
  const scarce: Blocker[] = [];
  const limiting: Blocker[] = [];
  for (const { resource, each, freeAt, copiesAt } of askedAmounts(gang)) {
    yield;
    const places = sum(eligible, (node) => Math.min(tasks, copiesAt(ledger, node)));
    if (places === tasks * eligible.length) continue;
    const free = sum(eligible, (node) => freeAt(ledger, node));
    const limit = sum(eligible, (node) => freeAt(capacity, node));
    const found = blocker("Fragmented", resource, tasks * each, free, limit);
    (places < tasks ? scarce : limiting).push(found);
  }
  return scarce.length > 0 ? scarce : limiting;
}

function withoutFabric({ shape }: GangRequest): GangRequest["shape"] {
  return { ...shape, request: { ...shape.request, infiniband: false } };
}

function sum(nodes: readonly number[], amount: (node: number) => number): number {
  return nodes.reduce((total, node) => total + amount(node), 0);
}
