import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { settingValue } from "@heddle/contracts/api/settings";
import type { SchedulingInput } from "@heddle/scheduler/cycle/scheduling-cycle";
import {
  DEFAULT_SETTINGS,
  type ProjectState,
  type QueuedJob,
  type RunningJob,
  type SchedulerSettings,
  type SharedAmounts,
  type SharedSupply,
  type Strategy,
  type TaskRequest,
} from "@heddle/scheduler/model";
import { jobEntry, type PlanEntry } from "@heddle/scheduler/plan-entry";
import type { ControlState } from "../../state.ts";
import type { JobIndex } from "../index/job-index.ts";
import { ACCOUNTING_WINDOW_MS, usageAt } from "../records/account-changes.ts";
import { isUnderWay } from "../records/lifecycle.ts";
import { evictedFor } from "../records/logged-plan.ts";
import {
  type JobRecord,
  type JobsState,
  type ProjectRecord,
  type TaskRecord,
  taskKey,
} from "../records/records.ts";
import { missingRanks } from "../records/recovery.ts";
import { reservationOf } from "../records/renamed-fields.ts";
import { requestedFragments, sharedRequest, sharedStorageMb } from "../records/task-request.ts";
import { replicaClaims, servingEntries } from "./replica-claims.ts";
import { shardSupply } from "./shard-places.ts";

const MS_PER_HOUR = 3_600_000;
export const GPU_MILLI_MS_PER_HOUR = 1_000 * MS_PER_HOUR;

/**
 * What the scheduler decides on, built from the whole state: the definition that `IncrementalSnapshot` must
 * agree with. Pure; the same state and time give the same input.
 */
export function schedulingInput(
  state: ControlState,
  index: JobIndex,
  at: { readonly index: number; readonly nowMs: number },
): SchedulingInput {
  const running = [...state.jobs.values()]
    .map((job) => runningEntry(state, index, job))
    .filter((job) => job !== undefined);
  const snapshot = {
    index: at.index,
    nodes: [...state.nodes.values()].map((node) => index.snapshotOf(node)),
    running: [
      ...running,
      ...[...state.nodes.values()].flatMap((node) => servingEntries(index, node)),
    ],
    projects: [...state.projects.values()].map((project) => projectState(project, at.nowMs)),
    shared: sharedSupply(state, index),
  };
  const queue = [...index.live]
    .map((id) => queuedEntry(state, index, state.jobs.get(id)!))
    .filter((job) => job !== undefined);
  queue.push(...replicaClaims(state));
  const settings = schedulerSettings(state);
  return { snapshot, queue, nowMs: at.nowMs, settings };
}

/** The cluster's settings and queues as the scheduler's. */
export function schedulerSettings(state: ControlState): SchedulerSettings {
  const strategies: Record<string, { strategy: Strategy }> = {};
  for (const { name, strategy } of state.queues.values()) strategies[name] = { strategy };
  return {
    ...DEFAULT_SETTINGS,
    maxConcurrentJobs: settingValue(state.settings, "max_concurrent_jobs"),
    overcommitRatio: settingValue(state.settings, "overcommit_ratio"),
    jobTimeoutMs: settingValue(state.settings, "job_timeout") * 1_000,
    queues: strategies,
  };
}

/** The job as the scheduler places it: the whole gang, or a recovering one's lost tasks. */
export function queuedJob(state: JobsState, index: JobIndex, job: JobRecord): QueuedJob {
  return queuedFrom(jobEntry(job.id), state.specs.get(job.id)!, job, index.requestOf(job));
}

/** The same for a job that is not in the state. */
export function queuedFrom(
  entry: PlanEntry,
  spec: SubmitJob,
  job: Pick<JobRecord, "project" | "queue" | "tasks" | "submittedAtMs" | "waitingFor"> &
    Pick<JobRecord, "notBeforeMs"> &
    Parameters<typeof reservationOf>[0],
  request: TaskRequest,
): QueuedJob {
  const { resources, max_runtime_hours: hours } = spec;
  const reservation = reservationOf(job);
  return {
    entry,
    project: job.project,
    queue: job.queue,
    kind: "training",
    qosLevel: resources.qos_level,
    priority: resources.priority,
    preemptible: resources.preemptible,
    tasks: job.tasks,
    request,
    shared: sharedRequest(spec),
    submittedAtMs: job.submittedAtMs,
    maxRuntimeMs: hours === undefined ? undefined : hours * MS_PER_HOUR,
    waitingFor: job.waitingFor,
    notBeforeMs: job.notBeforeMs ?? 0,
    sameRack: resources.same_rack,
    reservedStartMs: reservation.startMs,
    reservationRank: reservation.rank,
  };
}

/** The job while a task of it may still hold something; undefined where none does. */
export function runningEntry(
  state: JobsState,
  index: JobIndex,
  job: JobRecord,
): RunningJob | undefined {
  if (job.liveTasks === 0) return undefined;
  const placements = tasksOf(state, job).filter(({ phase }) => phase !== "exited");
  const {
    entry: _,
    waitingFor: __,
    notBeforeMs: ___,
    sameRack: ____,
    ...traits
  } = queuedJob(state, index, job);
  const startedAtMs = job.startedAtMs ?? job.sinceMs;
  const evicting = isUnderWay(job.state)
    ? undefined
    : { forEntry: evictedFor(job.leaving), byMs: job.dueMs ?? leavesByMs(state, job) };
  return {
    ...traits,
    id: job.id,
    tasks: placements.length,
    placements,
    shared: sharedHolding(state.specs.get(job.id)!, job),
    startedAtMs,
    checkpointedAtMs: Math.max(startedAtMs, job.checkpoint?.atMs ?? 0),
    expectedEndMs: expectedEndMs(job, startedAtMs),
    evicting,
  };
}

/** What a job of which a task may hold something has that belongs to no node. */
function sharedHolding(spec: SubmitJob, { shards = [] }: JobRecord): SharedAmounts | undefined {
  const storageMb = sharedRequest(spec)?.storageMb ?? 0;
  if (storageMb === 0 && shards.length === 0) return undefined;
  const each = requestedFragments(spec);
  const places = new Map<string, number>();
  for (const server of shards) places.set(server, (places.get(server) ?? 0) + each);
  return { storageMb, places };
}

/** When all tasks of an ended attempt are gone: those of lost nodes once they are fenced. */
export function leavesByMs(state: JobsState, job: JobRecord): number {
  let byMs = job.sinceMs;
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(taskKey(job.id, job.attempt, rank));
    if (task?.phase !== "lost") continue;
    byMs = Math.max(byMs, state.nodes.get(task.nodeId)?.fencedAtMs ?? 0);
  }
  return byMs;
}

/** Extrapolates from the reported share of progress at the speed since the start. */
function expectedEndMs({ progress }: JobRecord, startedAtMs: number): number | undefined {
  const done = progress?.progress;
  if (progress === undefined || done === undefined || done <= 0) return undefined;
  return progress.atMs + ((progress.atMs - startedAtMs) * (1 - done)) / done;
}

/** The project as quotas and fair shares see it at a time. */
export function projectState(
  { name, weight, quota, usage }: ProjectRecord,
  nowMs: number,
): ProjectState {
  const now = usageAt(usage, nowMs);
  return {
    project: name,
    weight,
    quota,
    usedGpuHours: now.windowGpuMilliMs / GPU_MILLI_MS_PER_HOUR,
    windowEndsMs: now.windowStartMs + ACCOUNTING_WINDOW_MS,
    usage: {
      gpuMilliMs: now.decayedGpuMilliMs,
      cpuMilliMs: now.decayedCpuMilliMs,
      memoryMibMs: now.decayedMemoryMibMs,
      asOfMs: now.asOfMs,
    },
  };
}

/**
 * The job as it waits, or a recovering one's lost tasks; undefined for one that does not wait. A
 * plan admits and starts accepted ones at once.
 */
export function queuedEntry(
  state: JobsState,
  index: JobIndex,
  job: JobRecord,
): QueuedJob | undefined {
  if (job.state === "recovering") {
    const lost = missingRanks({ tasksOf: (of) => tasksOf(state, of) }, job).length;
    if (lost === 0) return undefined;
    const queued = queuedJob(state, index, job);
    // Its job holds already what belongs to no node.
    const rest = { tasks: lost, shared: undefined, joinsRunning: job.liveTasks > 0 };
    return { ...queued, ...rest, entry: { kind: "recovery", jobId: job.id } };
  }
  const waits = (job.state === "pending" || job.state === "accepted") && job.liveTasks === 0;
  return waits ? queuedJob(state, index, job) : undefined;
}

/** The tasks of the job's latest attempt, by rank. */
export function tasksOf(state: JobsState, job: JobRecord): TaskRecord[] {
  const tasks: TaskRecord[] = [];
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(taskKey(job.id, job.attempt, rank));
    if (task) tasks.push(task);
  }
  return tasks;
}

/** What there is of shared storage and places on parameter servers, and what is free of it. */
export function sharedSupply(state: JobsState, index: JobIndex): SharedSupply {
  const storageMb = Math.floor(sharedStorageMb(settingValue(state.settings, "shared_storage_gb")));
  const shards = shardSupply(state, index);
  return {
    limit: { storageMb, places: shards.limit },
    free: { storageMb: storageMb - index.holdings.sharedStorageMb, places: shards.free },
  };
}
