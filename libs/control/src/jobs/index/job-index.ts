import { CapacityBook } from "@heddle/scheduler/cluster/capacity-book";
import type { NodeSnapshot, TaskRequest } from "@heddle/scheduler/model";
import { ProjectStorage } from "../../project-storage.ts";
import { isTerminal, isUnderWay } from "../records/lifecycle.ts";
import { registrationOf } from "../records/model-registration.ts";
import type {
  JobRecord,
  JobsState,
  NodeRecord,
  ReplicaRecord,
  TaskRecord,
} from "../records/records.ts";
import { reservationOf } from "../records/renamed-fields.ts";
import {
  nodeLabels,
  nodeScalars,
  requestedFragments,
  SERVING_PROJECT,
  servingRequest,
  sharedRequest,
  taskRequest,
} from "../records/task-request.ts";
import { EventLog } from "./event-log.ts";
import { Holdings } from "./holdings.ts";
import { SubmissionOrder } from "./submission-order.ts";

/** A reader that processes the changes since its last read. */
export interface IndexWatcher {
  jobChanged(id: string): void;
  nodeChanged(id: string): void;
  /** The node's record was removed; a node that returns under its id is a new one. */
  nodeDropped(id: string): void;
}

/** A node's snapshot, and the parts of the record that it was built from. */
interface NodeSeen extends Pick<NodeRecord, "offer" | "state" | "quarantined"> {
  readonly snapshot: NodeSnapshot;
}

/** A request and the number of jobs that share it. */
interface SharedTaskRequest {
  readonly key: string;
  readonly request: TaskRequest;
  jobs: number;
}

/**
 * Derived data that would be slow to compute from the jobs' state. It is not replicated: a restore
 * rebuilds it. Where its order decides something, the order does not depend on how it was built.
 */
export class JobIndex {
  readonly #state: JobsState;
  readonly capacity = new CapacityBook();
  readonly holdings = new Holdings();
  /** Ids of the nodes on which replicas of deployed models hold devices. */
  readonly servingNodes = new Set<string>();
  /** Keyed by node id, then deployment: the replicas with a place there. */
  readonly replicasByNode = new Map<string, Map<string, ReplicaRecord>>();
  /** All jobs. */
  readonly submitted = new SubmissionOrder();
  /** Jobs that have not ended, in the order of their submission. */
  readonly live = new Set<string>();
  /** Keyed by `project/name`: the latest job of that name. */
  readonly byName = new Map<string, string>();
  /** Keyed by job id: the live jobs that depend on it. */
  readonly dependents = new Map<string, Set<string>>();
  /** Keyed by node id: the keys of its tasks that may be alive. */
  readonly tasksByNode = new Map<string, Set<string>>();
  /** Tasks that may be alive. */
  liveTasks = 0;
  /** Jobs with such tasks. */
  placedJobs = 0;
  /** Keyed by job id: when its state times out. */
  readonly dues = new Map<string, number>();
  /** Jobs with an unconfirmed failure. */
  readonly suspected = new Set<string>();
  /** Keyed by parameter server: the shards of each job there, counted per fragment. */
  readonly shardsByServer = new Map<string, Map<string, number>>();
  /** Jobs that have succeeded and whose model is not registered yet. */
  readonly unregistered = new Set<string>();
  /** Keyed by queue: its live jobs. */
  readonly queueLengths = new Map<string, number>();
  /** Ended jobs without live tasks, in the order in which they ended. */
  readonly ended: JobRecord[] = [];
  readonly events: EventLog;
  /** Live jobs with a reservation or a rank. */
  readonly ranked = new Set<string>();
  /** Requests by job; equal ones are the same object. */
  readonly #requests = new Map<
    string,
    { readonly tasks: number; readonly shared: SharedTaskRequest }
  >();
  /** Keyed by their JSON; only those of known jobs. */
  readonly #interned = new Map<string, SharedTaskRequest>();
  readonly #snapshots = new Map<string, NodeSeen>();
  readonly #watchers = new Set<IndexWatcher>();
  /** What the projects keep: artifacts of tasks, and checkpoints. */
  readonly storage: ProjectStorage;

  constructor(state: JobsState, storage = new ProjectStorage()) {
    this.#state = state;
    this.storage = storage;
    storage.clear("artifacts");
    storage.clear("checkpoints");
    this.events = new EventLog(state.events.values());
    for (const node of state.nodes.values()) this.onNode(undefined, node);
    for (const job of state.jobs.values()) this.onJob(undefined, job);
    for (const [key, task] of state.tasks) {
      this.onTask(key, undefined, task);
      if (task.phase === "exited") continue;
      this.capacity.hold(this.requestOf(state.jobs.get(task.jobId)!), task);
    }
    for (const place of state.replicas.values()) {
      if (place.failure) continue;
      this.onReplica(place, 1);
      this.capacity.hold(servingRequest(place.devices.length), place);
    }
  }

  /** Notifies the watcher of each job and node that changes, for the lifetime of the index. */
  watch(watcher: IndexWatcher): void {
    this.#watchers.add(watcher);
  }

  onNode(before: NodeRecord | undefined, after: NodeRecord): void {
    for (const watcher of this.#watchers) watcher.nodeChanged(after.offer.id);
    this.capacity.setNode(this.snapshotOf(after));
    if (before?.serving !== after.serving) this.#setServing(after.offer.id, before, after);
  }

  #setServing(nodeId: string, before: NodeRecord | undefined, after: NodeRecord | undefined): void {
    for (const { devices } of before?.serving ?? []) {
      this.capacity.release(servingRequest(devices.length), { nodeId, devices });
      this.holdings.moveGpus(SERVING_PROJECT, -WHOLE_DEVICE_MILLI * devices.length);
    }
    for (const { devices } of after?.serving ?? []) {
      this.capacity.hold(servingRequest(devices.length), { nodeId, devices });
      this.holdings.moveGpus(SERVING_PROJECT, WHOLE_DEVICE_MILLI * devices.length);
    }
    if (after && after.serving.length > 0) this.servingNodes.add(nodeId);
    else this.servingNodes.delete(nodeId);
  }

  /** A node that holds nothing. */
  dropNode(node: NodeRecord): void {
    const { id } = node.offer;
    this.#setServing(id, node, undefined);
    this.capacity.removeNode(id);
    this.#snapshots.delete(id);
    for (const watcher of this.#watchers) watcher.nodeDropped(id);
  }

  /** A job was submitted, changed or removed. */
  onJob(before: JobRecord | undefined, after: JobRecord | undefined): void {
    const job = (after ?? before)!;
    this.storage.add(job.project, "checkpoints", savedBytes(after) - savedBytes(before));
    for (const watcher of this.#watchers) watcher.jobChanged(job.id);
    if (before && isForgettable(before)) this.ended.splice(this.#endedPlace(before), 1);
    if (after && isForgettable(after)) this.ended.splice(this.#endedPlace(after), 0, after);
    const wasLive = before !== undefined && !isTerminal(before.state);
    const isLive = after !== undefined && !isTerminal(after.state);
    if (isLive !== wasLive) this.#setLive(job, isLive);
    this.placedJobs += Number(isPlaced(after)) - Number(isPlaced(before));
    this.#setDue(job, isLive ? job.dueMs : undefined);
    if (isLive && job.suspectedMs !== undefined) this.suspected.add(job.id);
    else this.suspected.delete(job.id);
    const waitedFor = wasLive ? before.waitingFor : [];
    const waitsFor = isLive ? after.waitingFor : [];
    if (waitedFor !== waitsFor) this.#setWaiting(job.id, waitedFor, waitsFor);
    this.#setShards(job.id, shardsHeld(before), shardsHeld(after));
    const { startMs, rank } = reservationOf(job);
    const isRanked = startMs !== undefined || rank !== undefined;
    if (isLive && isRanked) this.ranked.add(job.id);
    else this.ranked.delete(job.id);
    this.#setUnregistered(job.id, after);
    if (!before) {
      this.submitted.add(job);
      this.byName.set(nameKey(job), job.id);
    }
    if (!after) this.#forget(job);
  }

  /** The caller updates the holdings, since a checked start has already changed them. */
  onTask(key: string, before: TaskRecord | undefined, after: TaskRecord | undefined): void {
    this.#addArtifacts((after ?? before)!, artifactBytes(after) - artifactBytes(before));
    const held = before !== undefined && before.phase !== "exited";
    const holds = after !== undefined && after.phase !== "exited";
    if (held === holds) return;
    const task = (holds ? after : before)!;
    this.liveTasks += holds ? 1 : -1;
    const { nodeId } = task;
    const storageMb = sharedRequest(this.#state.specs.get(task.jobId)!)?.storageMb ?? 0;
    const { project } = this.#state.jobs.get(task.jobId)!;
    this.holdings.moveTask(project, task, holds ? 1 : -1, storageMb);
    const keys = this.tasksByNode.get(nodeId) ?? new Set();
    if (holds) keys.add(key);
    else keys.delete(key);
    if (keys.size > 0) this.tasksByNode.set(nodeId, keys);
    else this.tasksByNode.delete(nodeId);
  }

  /** The record of a task that is not live was removed. */
  onTaskDropped(task: TaskRecord): void {
    this.#addArtifacts(task, -artifactBytes(task));
  }

  #addArtifacts({ jobId }: TaskRecord, bytes: number): void {
    const { project } = this.#state.jobs.get(jobId)!;
    this.storage.add(project, "artifacts", bytes);
  }

  /** A replica got or lost its place. The caller updates the holdings. */
  onReplica(place: ReplicaRecord, sign: 1 | -1): void {
    const { nodeId, devices } = place;
    const places = this.replicasByNode.get(nodeId) ?? new Map<string, ReplicaRecord>();
    if (sign === 1) places.set(place.deployment, place);
    else places.delete(place.deployment);
    if (places.size > 0) this.replicasByNode.set(nodeId, places);
    else this.replicasByNode.delete(nodeId);
    this.holdings.moveGpus(SERVING_PROJECT, sign * WHOLE_DEVICE_MILLI * devices.length);
    for (const watcher of this.#watchers) watcher.nodeChanged(nodeId);
  }

  /** The record of a replica that keeps its place changed. */
  onReplicaChange(place: ReplicaRecord): void {
    this.replicasByNode.get(place.nodeId)?.set(place.deployment, place);
  }

  /** What one task of the job needs. */
  requestOf(job: JobRecord): TaskRequest {
    const known = this.#requests.get(job.id);
    if (known?.tasks === job.tasks) return known.shared.request;
    this.#releaseRequest(job.id);
    const made = taskRequest(this.#state.specs.get(job.id)!, job.tasks);
    const key = JSON.stringify(made);
    const shared = this.#interned.get(key) ?? { key, request: made, jobs: 0 };
    shared.jobs++;
    this.#interned.set(key, shared);
    this.#requests.set(job.id, { tasks: job.tasks, shared });
    return shared.request;
  }

  #releaseRequest(jobId: string): void {
    const { shared } = this.#requests.get(jobId) ?? {};
    if (shared && --shared.jobs === 0) this.#interned.delete(shared.key);
    this.#requests.delete(jobId);
  }

  /** The node as the scheduler sees it; the same object until that changes. */
  snapshotOf(record: NodeRecord): NodeSnapshot {
    const { offer, state, quarantined } = record;
    const known = this.#snapshots.get(offer.id);
    if (known?.offer === offer && known.state === state && known.quarantined === quarantined) {
      return known.snapshot;
    }
    const unhealthy = new Set(quarantined.map(({ device }) => device));
    const snapshot: NodeSnapshot = {
      id: offer.id,
      state,
      gpuType: offer.gpuType,
      gpuMemoryGb: offer.gpuMemoryGb,
      devices: Array.from({ length: offer.gpuCount }, (_, at) => ({ healthy: !unhealthy.has(at) })),
      capacity: nodeScalars(offer),
      labels: nodeLabels(offer),
      taints: offer.taints,
      rack: offer.rack,
      fabric: offer.fabric,
    };
    this.#snapshots.set(offer.id, { offer, state, quarantined, snapshot });
    return snapshot;
  }

  #setLive({ id, queue }: JobRecord, isLive: boolean): void {
    if (isLive) this.live.add(id);
    else this.live.delete(id);
    const length = (this.queueLengths.get(queue) ?? 0) + (isLive ? 1 : -1);
    if (length > 0) this.queueLengths.set(queue, length);
    else this.queueLengths.delete(queue);
  }

  #setDue({ id }: JobRecord, dueMs: number | undefined): void {
    if (dueMs === undefined) this.dues.delete(id);
    else this.dues.set(id, dueMs);
  }

  #setWaiting(id: string, before: readonly string[], after: readonly string[]): void {
    for (const dependency of before) {
      if (after.includes(dependency)) continue;
      const waiting = this.dependents.get(dependency);
      waiting?.delete(id);
      if (waiting?.size === 0) this.dependents.delete(dependency);
    }
    for (const dependency of after) {
      const waiting = this.dependents.get(dependency) ?? new Set();
      this.dependents.set(dependency, waiting.add(id));
    }
  }

  #setShards(id: string, before: readonly string[], after: readonly string[]): void {
    if (before === after) return;
    for (const server of before) {
      this.shardsByServer.get(server)?.delete(id);
      if (this.shardsByServer.get(server)?.size === 0) this.shardsByServer.delete(server);
    }
    if (after.length === 0) return;
    const each = requestedFragments(this.#state.specs.get(id)!);
    for (const server of after) {
      const jobs = this.shardsByServer.get(server) ?? new Map<string, number>();
      this.shardsByServer.set(server, jobs.set(id, (jobs.get(id) ?? 0) + each));
    }
  }

  #setUnregistered(id: string, job: JobRecord | undefined): void {
    const spec = job?.state === "succeeded" && !job.model && this.#state.specs.get(id);
    if (spec && registrationOf(spec)) this.unregistered.add(id);
    else this.unregistered.delete(id);
  }

  #forget(job: JobRecord): void {
    this.submitted.remove(job);
    this.#releaseRequest(job.id);
    const name = nameKey(job);
    if (this.byName.get(name) === job.id) this.byName.delete(name);
  }

  /** The job's position among the ended jobs. */
  #endedPlace(job: JobRecord): number {
    let low = 0;
    let high = this.ended.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (endedBefore(this.ended[middle]!, job)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const WHOLE_DEVICE_MILLI = 1_000;

/** The key of a job's name within its project. */
export function nameKey({ project, name }: Pick<JobRecord, "project" | "name">): string {
  return `${project}/${name}`;
}

const NO_SHARDS: readonly string[] = [];

/** Where a job holds shards, while its attempt continues or one of its tasks may be alive. */
function shardsHeld(job: JobRecord | undefined): readonly string[] {
  if (!job?.shards) return NO_SHARDS;
  return isUnderWay(job.state) || job.liveTasks > 0 ? job.shards : NO_SHARDS;
}

/** The size of the artifacts that a task has left. */
export function artifactBytes(task: Pick<TaskRecord, "exit"> | undefined): number {
  return (task?.exit?.artifacts ?? []).reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The size of a job's checkpoints: those of a succeeded or cancelled job are removed. */
function savedBytes(job: JobRecord | undefined): number {
  if (!job || job.state === "succeeded" || job.state === "cancelled") return 0;
  return job.checkpoint?.bytes ?? 0;
}

function isPlaced(job: JobRecord | undefined): boolean {
  return job !== undefined && job.liveTasks > 0;
}

function isForgettable(job: JobRecord): boolean {
  return isTerminal(job.state) && job.liveTasks === 0;
}

function endedBefore(a: JobRecord, b: JobRecord): boolean {
  const sooner = (a.endedAtMs ?? 0) - (b.endedAtMs ?? 0);
  return sooner < 0 || (sooner === 0 && a.submittedIndex < b.submittedIndex);
}
