import { MAX_DEVICES } from "@heddle/scheduler/cluster/ledger";
import { FENCES_BY_LEADER } from "../../cluster-version.ts";
import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import { messagesAt } from "../../state-messages.ts";
import type { JobIndex } from "../index/job-index.ts";
import type {
  DrainNodeCommand,
  FailReplicaCommand,
  JoinNodeCommand,
  LoseNodesCommand,
  ReadyReplicaCommand,
  ReleaseReplicaCommand,
  ResumeNodeCommand,
  ServingNodeCommand,
} from "../records/commands.ts";
import {
  type NodeOffer,
  type NodeRecord,
  type ReplicaRecord,
  replicaKey,
  type TaskRecord,
} from "../records/records.ts";
import { healthyReadingFields } from "../records/renamed-fields.ts";
import { fewestTasks } from "../records/task-request.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";
import { leaveWithGrace } from "./requests.ts";
import { putTasks } from "./task-reports.ts";

const MAX_NODES = 20_000;

/** A node joins, returns, or changes its offer. Its drain and its quarantined devices stay. */
export function applyNodeJoin(change: JobsTransaction, { offer }: JoinNodeCommand): ControlReply {
  const { nodes } = change.state;
  const fault = offerFault(offer);
  if (fault) return refuse("invalid_value", fault);
  const known = nodes.get(offer.id);
  if (!known && nodes.size >= MAX_NODES && !forgetLostNode(change)) {
    return refuse("overloaded", `the cluster holds ${MAX_NODES} nodes`);
  }
  const isBack = known?.state === "lost";
  const { index: changedIndex, atMs: joinedAtMs } = change.now;
  change.putNode({
    ...(known ?? { state: "ready", joinedAtMs, quarantined: [], serving: [] }),
    offer,
    changedIndex,
    ...(isBack ? returned(known) : {}),
  });
  const isSame = known?.offer.gpuCount === offer.gpuCount && known.offer.gpuType === offer.gpuType;
  // A drain that was ordered while the node was lost starts now; its deadline may have passed.
  if (isBack) evict(change, offer.id);
  change.finishDrain(offer.id);
  if (!isSame && offer.gpuCount > 0) resplitQueuedJobs(change);
  return ACCEPTED;
}

/** Leases are renewed again, so that only its reports say which of its lost tasks have ended. */
function returned({ before = "ready", lostIndex }: NodeRecord): Partial<NodeRecord> {
  const back = { state: before, before: undefined, lostAtMs: undefined };
  return lostIndex === undefined ? back : { ...back, fencedAtMs: undefined, lostIndex: undefined };
}

function offerFault(offer: NodeOffer): string | undefined {
  if (!/^[\x21-\x7e]{1,128}$/.test(offer.id)) return "a node's id is 1 to 128 characters";
  if (!(Number.isInteger(offer.gpuCount) && offer.gpuCount >= 0 && offer.gpuCount <= MAX_DEVICES)) {
    return `a node has 0 to ${MAX_DEVICES} GPUs, got ${offer.gpuCount}`;
  }
  const amounts = ["cpuMilli", "memoryMib", "localSsdGb", "ioOperationsPerSec", "networkMbps"];
  for (const name of amounts as (keyof NodeOffer)[]) {
    if (!(Number.isSafeInteger(offer[name]) && (offer[name] as number) >= 0)) {
      return `a node's ${name} is a whole number, got ${String(offer[name])}`;
    }
  }
  const { maxTasks = 1 } = offer;
  if (!(Number.isSafeInteger(maxTasks) && maxTasks >= 1)) {
    return `a node takes at least one task, got ${maxTasks}`;
  }
  return undefined;
}

/** Makes room: drops the node that was lost first and that holds nothing. */
function forgetLostNode({ state, index }: JobsTransaction): boolean {
  let oldest: NodeRecord | undefined;
  for (const node of state.nodes.values()) {
    if (node.state !== "lost" || index.tasksByNode.has(node.offer.id)) continue;
    if (!oldest || (node.lostAtMs ?? 0) < (oldest.lostAtMs ?? 0)) oldest = node;
  }
  if (!oldest) return false;
  state.nodes.delete(oldest.offer.id);
  index.dropNode(oldest);
  return true;
}

/** Queued jobs without a fixed number of tasks are split again for the new nodes. */
function resplitQueuedJobs(change: JobsTransaction): void {
  const widest = widestNodes(change.state.nodes.values());
  for (const id of change.index.live) {
    const job = change.state.jobs.get(id)!;
    const spec = change.state.specs.get(id)!;
    if (spec.tasks !== undefined || spec.resources.gpu_count <= 1) continue;
    if ((job.state !== "accepted" && job.state !== "pending") || job.liveTasks > 0) continue;
    const tasks = fewestTasks(spec, widest);
    if (tasks === job.tasks) continue;
    change.dropTasks(job);
    change.putJob({ ...job, tasks, changedIndex: change.now.index });
  }
}

/** Per GPU type a node with the most GPUs, which decides the number of tasks. */
function widestNodes(nodes: Iterable<NodeRecord>): NodeRecord[] {
  const widest = new Map<string, NodeRecord>();
  for (const node of nodes) {
    const { gpuType, gpuCount } = node.offer;
    if (gpuCount > (widest.get(gpuType)?.offer.gpuCount ?? -1)) widest.set(gpuType, node);
  }
  return [...widest.values()];
}

export function setServing(change: JobsTransaction, command: ServingNodeCommand): ControlReply {
  const node = change.state.nodes.get(command.nodeId);
  if (!node) return unknownNode(command.nodeId);
  change.putNode({ ...node, serving: command.serving, changedIndex: change.now.index });
  return ACCEPTED;
}

/** A replica serves; one that it replaces may stop. */
export function readyReplica(change: JobsTransaction, command: ReadyReplicaCommand): ControlReply {
  const place = change.state.replicas.get(replicaKey(command));
  if (place && !place.failure && place.readyAtMs === undefined) {
    change.putReplica({ ...place, readyAtMs: change.now.atMs });
  }
  return ACCEPTED;
}

/** The replicas that hold devices of the node. */
function placesOn({ index }: JobsTransaction, nodeId: string): ReplicaRecord[] {
  return [...(index.replicasByNode.get(nodeId)?.values() ?? [])];
}

/** Evicts replicas from nodes whose drain deadline has passed. */
export function evictReplicas(change: JobsTransaction): void {
  for (const node of change.state.nodes.values()) {
    if ((replicasDueMs(change.index, node) ?? Number.POSITIVE_INFINITY) > change.now.atMs) continue;
    for (const place of placesOn(change, node.offer.id)) {
      if (!place.evicted) change.putReplica({ ...place, evicted: true });
    }
  }
}

/** When replicas on draining nodes must stop; undefined if none is pending. */
export function replicasDueMs(
  { replicasByNode }: JobIndex,
  { offer, state, drainByMs }: NodeRecord,
): number | undefined {
  if (state !== "draining") return undefined;
  for (const { evicted } of replicasByNode.get(offer.id)?.values() ?? []) {
    if (!evicted) return drainByMs;
  }
  return undefined;
}

/** A replica has left its place, which becomes free. */
export function releaseReplica(
  change: JobsTransaction,
  command: ReleaseReplicaCommand,
): ControlReply {
  const place = change.state.replicas.get(replicaKey(command));
  if (place) change.dropReplica(place);
  return ACCEPTED;
}

/** Releases the devices and keeps the record, so that the deployment gets no further place. */
export function failReplica(change: JobsTransaction, command: FailReplicaCommand): ControlReply {
  const place = change.state.replicas.get(replicaKey(command));
  const { code, message, atMs } = command;
  if (place && !place.failure) change.failReplica(place, { code, message, atMs });
  return ACCEPTED;
}

/** Tasks may run until the node is fenced: nothing takes their place before. */
export function loseNodes(change: JobsTransaction, command: LoseNodesCommand): ControlReply {
  const lost: TaskRecord[] = [];
  for (const id of command.nodeIds) {
    const node = change.state.nodes.get(id);
    if (!node || node.state === "lost") continue;
    change.putNode({
      ...node,
      state: "lost",
      before: node.state,
      lostAtMs: change.now.atMs,
      fencedAtMs: command.fencedAtMs,
      ...(change.version >= FENCES_BY_LEADER && { lostIndex: change.now.index }),
      changedIndex: change.now.index,
    });
    for (const place of placesOn(change, id)) change.dropReplica(place);
    for (const key of change.index.tasksByNode.get(id) ?? []) {
      lost.push({ ...change.state.tasks.get(key)!, phase: "lost" });
    }
  }
  putTasks(change, lost);
  return ACCEPTED;
}

/** All work on the node checkpoints and moves; the node takes nothing new. */
export function drainNode(
  change: JobsTransaction,
  { nodeId, byMs }: DrainNodeCommand,
): ControlReply {
  const node = change.state.nodes.get(nodeId);
  if (!node) return unknownNode(nodeId);
  if (node.state === "drained") return ACCEPTED;
  const draining = { drainByMs: byMs, changedIndex: change.now.index };
  if (node.state === "lost") {
    change.putNode({ ...node, ...draining, before: "draining" });
    return ACCEPTED;
  }
  change.putNode({ ...node, ...draining, state: "draining" });
  evict(change, nodeId);
  change.finishDrain(nodeId);
  return ACCEPTED;
}

/** Evicts all running work from a draining node. */
function evict(change: JobsTransaction, nodeId: string): void {
  const node = change.state.nodes.get(nodeId);
  if (node?.state !== "draining") return;
  const jobs = new Set<string>();
  for (const key of change.index.tasksByNode.get(nodeId) ?? []) {
    jobs.add(change.state.tasks.get(key)!.jobId);
  }
  for (const id of jobs) {
    leaveWithGrace(change, change.state.jobs.get(id)!, { why: "drain" }, node.drainByMs);
  }
}

/** Ends a drain. Healthy devices take work again. */
export function resumeNode(change: JobsTransaction, command: ResumeNodeCommand): ControlReply {
  const { nodeId, healthyDevices = [], healthyAsOf } = command;
  const node = change.state.nodes.get(nodeId);
  if (!node) return unknownNode(nodeId);
  const healed = node.quarantined.filter(({ device }) => healthyDevices.includes(device));
  const quarantined = node.quarantined.filter((entry) => !healed.includes(entry));
  const { deviceHealthy } = messagesAt(change.version);
  const why = healed.map(({ device }) => deviceHealthy(device)).join("; ") || undefined;
  const reading = healthyReadingFields(healthyAsOf, change.version);
  const taken = healed.length > 0 ? { quarantined, ...reading } : {};
  const resumed = { ...taken, drainByMs: undefined, changedIndex: change.now.index };
  if (node.state === "lost") change.putNode({ ...node, ...resumed, before: "ready" }, why);
  else if (node.state !== "ready" || why !== undefined) {
    change.putNode({ ...node, ...resumed, state: "ready" }, why);
  }
  return ACCEPTED;
}

function unknownNode(id: string): ControlReply {
  return refuse("not_found", `no node has the id ${id}`);
}
