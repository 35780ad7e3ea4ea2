import { BOUNDED_RECORDS } from "../../cluster-version.ts";
import { BOUNDED_FROM, hasTooManyEvents, keptParts } from "../../state-limits.ts";
import { positionText } from "../index/event-log.ts";
import type { JobIndex } from "../index/job-index.ts";
import { AccountChanges } from "../records/account-changes.ts";
import { fittedJob, fittedTask } from "../records/fitted-records.ts";
import {
  type ApplyContext,
  isTerminal,
  type JobTransition,
  transition,
} from "../records/lifecycle.ts";
import {
  type EventRecord,
  type JobFailureRecord,
  type JobRecord,
  type JobsState,
  type NodeRecord,
  type ReplicaFailure,
  type ReplicaRecord,
  replicaKey,
  type ServerRecord,
  type TaskRecord,
  taskKey,
} from "../records/records.ts";
import { SERVING_PROJECT, servingRequest } from "../records/task-request.ts";

/**
 * The effect of one command on the state. Every write goes through here, which maintains the index,
 * the events and the projects' accounts.
 */
export class JobsTransaction {
  readonly state: JobsState;
  readonly index: JobIndex;
  readonly now: ApplyContext;
  readonly #accounts: AccountChanges;
  /** Jobs that ended in this command, whose dependents must be updated. */
  readonly #ended: JobRecord[] = [];
  #ordinal = 0;

  constructor(state: JobsState, index: JobIndex, now: ApplyContext) {
    this.state = state;
    this.index = index;
    this.now = now;
    this.#accounts = new AccountChanges(state.projects, now.atMs);
  }

  /** The cluster version whose rules apply; see cluster-version.ts. */
  get version(): number {
    return this.now.version;
  }

  /** Applies a transition of the lifecycle to the job. Returns the new job. */
  move(job: JobRecord, event: JobTransition): JobRecord {
    let last = job;
    for (const next of transition(job, event, this.now)) {
      if (next.state !== last.state) this.#emitJob(last, next);
      last = next;
    }
    if (last === job) return job;
    this.putJob(last);
    if (isTerminal(last.state) && !isTerminal(job.state)) this.#ended.push(last);
    return last;
  }

  submit(job: JobRecord): void {
    this.putJob(job);
    this.#emitJob(undefined, job);
  }

  /** Writes a change that is no transition of the lifecycle. */
  putJob(written: JobRecord): void {
    const job = withoutAbsent(this.#fitted(written, fittedJob));
    const before = this.state.jobs.get(job.id);
    this.state.jobs.set(job.id, job);
    this.index.onJob(before, job);
  }

  /** Removes an ended job and everything of it. */
  dropJob(job: JobRecord): void {
    this.dropTasks(job);
    this.index.onJob(job, undefined);
    this.state.jobs.delete(job.id);
    this.state.specs.delete(job.id);
  }

  /** The tasks of the job's present attempt, by rank. */
  tasksOf(job: JobRecord): readonly TaskRecord[] {
    const tasks: TaskRecord[] = [];
    if (job.attempt === 0) return tasks;
    for (let rank = 0; rank < job.tasks; rank++) {
      const task = this.state.tasks.get(taskKey(job.id, job.attempt, rank));
      if (task) tasks.push(task);
    }
    return tasks;
  }

  /** Removes the tasks of an attempt once none of them is live. */
  dropTasks(job: JobRecord): void {
    if (job.attempt === 0) return;
    for (let rank = 0; rank < job.tasks; rank++) {
      const key = taskKey(job.id, job.attempt, rank);
      const task = this.state.tasks.get(key);
      if (task) this.index.onTaskDropped(task);
      this.state.tasks.delete(key);
    }
  }

  /** A task of a start that was checked, so the capacity already counts it. */
  startTask(job: JobRecord, task: TaskRecord): void {
    const key = taskKey(task.jobId, task.attempt, task.rank);
    // Delete first: the replacement then has the same position as after a restore.
    if (task.incarnation !== undefined) this.state.tasks.delete(key);
    this.state.tasks.set(key, task);
    this.index.onTask(key, undefined, task);
    this.#accounts.hold(job.project, this.index.requestOf(job), 1);
  }

  putTask(written: TaskRecord): void {
    const task = this.#fitted(written, fittedTask);
    const key = taskKey(task.jobId, task.attempt, task.rank);
    const before = this.state.tasks.get(key);
    this.state.tasks.set(key, withoutAbsent(task));
    this.index.onTask(key, before, task);
    if (task.phase !== "exited" || before?.phase === "exited") return;
    const job = this.state.jobs.get(task.jobId)!;
    const request = this.index.requestOf(job);
    this.index.capacity.release(request, task);
    this.#accounts.hold(job.project, request, -1);
    this.finishDrain(task.nodeId);
  }

  /** A draining node without tasks and replicas is drained. */
  finishDrain(nodeId: string): void {
    const node = this.state.nodes.get(nodeId);
    if (node?.state !== "draining" || this.index.tasksByNode.has(nodeId)) return;
    if (this.index.replicasByNode.has(nodeId)) return;
    this.putNode({ ...node, state: "drained", changedIndex: this.now.index });
  }

  /** A replica's place that was checked, so its devices are already counted. */
  placeReplica(place: ReplicaRecord): void {
    this.state.replicas.set(replicaKey(place), place);
    this.index.onReplica(place, 1);
    this.#accounts.hold(SERVING_PROJECT, servingRequest(place.devices.length), 1);
  }

  dropReplica(place: ReplicaRecord): void {
    this.state.replicas.delete(replicaKey(place));
    if (place.failure) return;
    this.index.onReplica(place, -1);
    const request = servingRequest(place.devices.length);
    this.index.capacity.release(request, place);
    this.#accounts.hold(SERVING_PROJECT, request, -1);
    this.finishDrain(place.nodeId);
  }

  /** Updates a replica that keeps its place. */
  putReplica(place: ReplicaRecord): void {
    this.state.replicas.set(replicaKey(place), place);
    this.index.onReplicaChange(place);
  }

  /** Releases the place; the record that remains holds the reason. */
  failReplica(place: ReplicaRecord, failure: ReplicaFailure): void {
    this.dropReplica(place);
    this.state.replicas.set(replicaKey(place), { ...place, devices: [], failure });
  }

  putNode(written: NodeRecord, why?: string): void {
    const node = withoutAbsent(written);
    const { id } = node.offer;
    const before = this.state.nodes.get(id);
    this.state.nodes.set(id, node);
    this.index.onNode(before, node);
    if (before?.state === node.state && why === undefined) return;
    this.#emit({ type: "node", nodeId: id, state: node.state, why });
  }

  /** `why`: what happened to its shards, where an event should say so. */
  putServer(written: ServerRecord, why?: string): void {
    const server = withoutAbsent(written);
    const { id, state } = server;
    const before = this.state.servers.get(id);
    this.state.servers.set(id, server);
    if (before?.state === state && why === undefined) return;
    this.#emit({ type: "node", nodeId: id, state, why });
  }

  /** Updates the accounts of projects that have long-running holdings. */
  settleAccounts(): void {
    this.#accounts.settle();
  }

  /** Completes the command: dependents of ended jobs first, then the accounts. */
  finish(): void {
    for (let at = 0; at < this.#ended.length; at++) this.#updateDependents(this.#ended[at]!);
    this.#accounts.write();
  }

  #updateDependents({ id, state }: JobRecord): void {
    for (const waiting of [...(this.index.dependents.get(id) ?? [])]) {
      const job = this.state.jobs.get(waiting)!;
      if (state === "succeeded") {
        const waitingFor = job.waitingFor.filter((dependency) => dependency !== id);
        this.putJob({ ...job, waitingFor, changedIndex: this.now.index });
        continue;
      }
      const message = `the job ${id}, on which it depends, is ${state}`;
      this.move(job, { type: "doomed", failure: { reason: "DependencyFailed", message } });
    }
  }

  #emitJob(before: JobRecord | undefined, after: JobRecord): void {
    const hasFailed = after.state === "failed" || after.failure !== before?.failure;
    this.#emit({
      type: "job",
      jobId: after.id,
      project: after.project,
      state: after.state,
      from: before?.state,
      attempt: after.attempt,
      failure: hasFailed && after.failure ? withoutLines(after.failure) : undefined,
      why: after.leaving?.why,
    });
  }

  /** The record, without the parts that the state has no room for. */
  #fitted<Item>(written: Item, fit: (record: Item, kept: "artifacts" | "least") => Item): Item {
    if (this.version < BOUNDED_RECORDS) return written;
    const kept = keptParts(this);
    return kept === "all" ? written : fit(written, kept);
  }

  /** Drops the oldest events above the limit on their bytes. */
  #boundEvents(): void {
    const { events } = this.state;
    while (events.size > 1 && hasTooManyEvents(this.state)) {
      const oldest = this.index.events.shift();
      if (oldest) events.delete(positionText(oldest));
    }
  }

  #emit(what: EventRecord["what"]): void {
    const { index, atMs } = this.now;
    const event: EventRecord = { index, ordinal: this.#ordinal++, atMs, what };
    this.state.events.set(positionText(event), event);
    const oldest = this.index.events.push(event);
    if (oldest) this.state.events.delete(positionText(oldest));
    if (this.version >= BOUNDED_FROM) this.#boundEvents();
  }
}

/**
 * The record without undefined members, as it comes back from JSON. Otherwise a member set later
 * would have another position after a restore, and another hash.
 */
function withoutAbsent<T extends object>(record: T): T {
  const kept = {} as T;
  for (const name in record) if (record[name] !== undefined) kept[name] = record[name];
  return kept;
}

function withoutLines(failure: JobFailureRecord): Omit<JobFailureRecord, "lastLines"> {
  const { lastLines: _, ...rest } = failure;
  return rest;
}
