import { BOUNDED_FROM, hasTooManyEvents } from "../../state-limits.ts";
import { positionText } from "../index/event-log.ts";
import type { JobIndex } from "../index/job-index.ts";
import { AccountChanges } from "../records/account-changes.ts";
import { isTerminal, type JobTransition, type Moment, transition } from "../records/lifecycle.ts";
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
 * One command's work on the state: every write goes through here, which keeps the index, makes the
 * events and keeps the projects' accounts.
 */
export class JobsTransaction {
  readonly state: JobsState;
  readonly index: JobIndex;
  readonly now: Moment;
  readonly #accounts: AccountChanges;
  /** Jobs that have ended in this command, whose dependents are to be told. */
  readonly #ended: JobRecord[] = [];
  #ordinal = 0;

  constructor(state: JobsState, index: JobIndex, now: Moment) {
    this.state = state;
    this.index = index;
    this.now = now;
    this.#accounts = new AccountChanges(state.projects, now.atMs);
  }

  /** The cluster version by whose rules the command is applied; see cluster-version.ts. */
  get version(): number {
    return this.now.version;
  }

  /** Lets something happen to the job, as the lifecycle has it. Returns the job after it. */
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

  /** Writes what is no step of the lifecycle. */
  putJob(written: JobRecord): void {
    const job = withoutAbsent(written);
    const before = this.state.jobs.get(job.id);
    this.state.jobs.set(job.id, job);
    this.index.onJob(before, job);
  }

  /** Forgets an ended job and all of it. */
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

  /** Forgets the tasks of an attempt of which none is left. */
  dropTasks(job: JobRecord): void {
    if (job.attempt === 0) return;
    for (let rank = 0; rank < job.tasks; rank++) {
      this.state.tasks.delete(taskKey(job.id, job.attempt, rank));
    }
  }

  /** A task of a start that was checked, and so holds its place in the capacity already. */
  startTask(job: JobRecord, task: TaskRecord): void {
    const key = taskKey(task.jobId, task.attempt, task.rank);
    // Deleted first: a replacement stands where it would stand after a snapshot.
    if (task.incarnation !== undefined) this.state.tasks.delete(key);
    this.state.tasks.set(key, task);
    this.index.onTask(key, undefined, task);
    this.#accounts.hold(job.project, this.index.requestOf(job), 1);
  }

  putTask(task: TaskRecord): void {
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

  /** A draining node of which the last task is over and the last replica gone is drained. */
  finishDrain(nodeId: string): void {
    const node = this.state.nodes.get(nodeId);
    if (node?.state !== "draining" || this.index.tasksByNode.has(nodeId)) return;
    if (this.index.replicasByNode.has(nodeId)) return;
    this.putNode({ ...node, state: "drained", changedIndex: this.now.index });
  }

  /** A replica's place that was checked, and so holds its devices already. */
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

  /** The same place, of which something else is known. */
  putReplica(place: ReplicaRecord): void {
    this.state.replicas.set(replicaKey(place), place);
    this.index.onReplicaChange(place);
  }

  /** The place holds nothing more; what is left says why. */
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

  /** `why`: what has become of its shards, where that is worth an event. */
  putServer(written: ServerRecord, why?: string): void {
    const server = withoutAbsent(written);
    const { id, state } = server;
    const before = this.state.servers.get(id);
    this.state.servers.set(id, server);
    if (before?.state === state && why === undefined) return;
    this.#emit({ type: "node", nodeId: id, state, why });
  }

  /** Brings the accounts up to date of projects that hold something for long. */
  settleAccounts(): void {
    this.#accounts.settle();
  }

  /** Ends the command: dependents of what has ended, then the accounts. */
  finish(): void {
    for (let at = 0; at < this.#ended.length; at++) this.#tellDependents(this.#ended[at]!);
    this.#accounts.write();
  }

  #tellDependents({ id, state }: JobRecord): void {
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

  /** The oldest events make room where all of them take too much. */
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
 * The record without members that are undefined, as it comes back from JSON: else a member set later
 * would stand in another place on a master that has read it from a snapshot, and hash otherwise.
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
