import type { SubmitJob } from "@heddle/contracts/jobs";
import { CLUSTER_SETTINGS, type SettingName } from "@heddle/contracts/settings";
import {
  type Blocker,
  DEFAULT_SETTINGS,
  type PendingJob,
  type ProjectState,
  type QueuedJob,
  type RunningJob,
  type SchedulerSettings,
  type Strategy,
  type TaskRequest,
} from "@heddle/scheduler/model";
import type { SchedulingInput } from "@heddle/scheduler/round";
import type { ControlState } from "../state.ts";
import { usageAt } from "./account-changes.ts";
import type { JobIndex } from "./job-index.ts";
import { isUnderWay } from "./lifecycle.ts";
import {
  type JobRecord,
  type JobsState,
  type ProjectRecord,
  type TaskRecord,
  taskKey,
} from "./records.ts";
import { missingRanks, RECOVERY_SUFFIX } from "./recovery.ts";
import { replicaClaims, servingEntries } from "./replica-claims.ts";
import { ShardRoom, shardsWanted } from "./shard-places.ts";

const MS_PER_HOUR = 3_600_000;
export const GPU_MILLI_MS_PER_HOUR = 1_000 * MS_PER_HOUR;

/** The state as the scheduler sees it, and the jobs that it does not see because of shared storage. */
export interface InputView {
  readonly input: SchedulingInput;
  readonly withheld: readonly PendingJob[];
}

/**
 * What the scheduler decides on, built from the whole state: the definition that `LiveStanding` must
 * agree with. Pure; the same state and time give the same input.
 */
export function schedulingInput(
  state: ControlState,
  index: JobIndex,
  at: { readonly index: number; readonly nowMs: number },
): InputView {
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
  };
  const withheld = withheldJobs(state, index, index.live);
  const without = new Set(withheld.map(({ jobId }) => jobId));
  const queue = [...index.live]
    .filter((id) => !without.has(id))
    .map((id) => queuedEntry(state, index, state.jobs.get(id)!))
    .filter((job) => job !== undefined);
  queue.push(...replicaClaims(state));
  const settings = schedulerSettings(state);
  return { input: { snapshot, queue, nowMs: at.nowMs, settings }, withheld };
}

/** The cluster's settings and queues as the scheduler's. */
export function schedulerSettings(state: ControlState): SchedulerSettings {
  const strategies: Record<string, { strategy: Strategy }> = {};
  for (const { name, strategy } of state.queues.values()) strategies[name] = { strategy };
  return {
    ...DEFAULT_SETTINGS,
    maxConcurrentJobs: settingOf(state, "max_concurrent_jobs"),
    overcommitRatio: settingOf(state, "overcommit_ratio"),
    jobTimeoutMs: settingOf(state, "job_timeout") * 1_000,
    queues: strategies,
  };
}

function settingOf(state: JobsState, name: SettingName): number {
  return state.settings.get(name)?.value ?? CLUSTER_SETTINGS[name].default;
}

/** The job as the scheduler places it: the whole gang, or a recovering one's lost tasks. */
export function queuedJob(state: JobsState, index: JobIndex, job: JobRecord): QueuedJob {
  return queuedFrom(state.specs.get(job.id)!, job, index.requestOf(job));
}

/** The same for a job that is not in the state. */
export function queuedFrom(
  spec: SubmitJob,
  job: Pick<JobRecord, "id" | "project" | "queue" | "tasks" | "submittedAtMs" | "waitingFor"> &
    Partial<Pick<JobRecord, "notBeforeMs" | "promisedStartMs">>,
  request: TaskRequest,
): QueuedJob {
  const { resources, max_runtime_hours: hours } = spec;
  return {
    id: job.id,
    project: job.project,
    queue: job.queue,
    kind: "training",
    qosLevel: resources.qos_level,
    priority: resources.priority,
    preemptible: resources.preemptible,
    tasks: job.tasks,
    request,
    submittedAtMs: job.submittedAtMs,
    maxRuntimeMs: hours === undefined ? undefined : hours * MS_PER_HOUR,
    waitingFor: job.waitingFor,
    notBeforeMs: job.notBeforeMs ?? 0,
    sameRack: resources.same_rack,
    promisedStartMs: job.promisedStartMs,
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
  const { waitingFor: _, notBeforeMs: __, sameRack: ___, ...traits } = queuedJob(state, index, job);
  const startedAtMs = job.startedAtMs ?? job.sinceMs;
  const evicting = isUnderWay(job.state)
    ? undefined
    : { forJobId: job.leaving?.forJobId ?? "", byMs: job.dueMs ?? leavesByMs(state, job) };
  return {
    ...traits,
    tasks: placements.length,
    placements,
    startedAtMs,
    checkpointedAtMs: Math.max(startedAtMs, job.checkpoint?.atMs ?? 0),
    expectedEndMs: expectedEndMs(job, startedAtMs),
    evicting,
  };
}

/** When the tasks of an attempt that is over are gone: those of lost nodes once they are fenced. */
function leavesByMs(state: JobsState, job: JobRecord): number {
  let byMs = job.sinceMs;
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(taskKey(job.id, job.attempt, rank));
    if (task?.phase !== "lost") continue;
    byMs = Math.max(byMs, state.nodes.get(task.nodeId)?.fencedAtMs ?? 0);
  }
  return byMs;
}

/** Where progress tells how far it is: as long again as it took for as much. */
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
    return { ...queued, id: `${job.id}${RECOVERY_SUFFIX}`, tasks: lost };
  }
  const waits = (job.state === "pending" || job.state === "accepted") && job.liveTasks === 0;
  return waits ? queuedJob(state, index, job) : undefined;
}

function tasksOf(state: JobsState, job: JobRecord): TaskRecord[] {
  const tasks: TaskRecord[] = [];
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(taskKey(job.id, job.attempt, rank));
    if (task) tasks.push(task);
  }
  return tasks;
}

/** How much of the storage that belongs to no node the job asks for. */
export function sharedStorageGb(state: JobsState, id: string): number {
  return state.specs.get(id)?.resources.shared_storage_gb ?? 0;
}

/**
 * The waiting jobs that shared storage holds back: what running jobs leave of it goes to the oldest.
 * Jobs that ask for none may be left out of `ids`.
 */
export function withheldJobs(
  state: JobsState,
  index: JobIndex,
  ids: Iterable<string>,
): PendingJob[] {
  const limit = settingOf(state, "shared_storage_gb");
  const jobs = [...ids].map((id) => state.jobs.get(id)!);
  const shards = new ShardRoom(state, index);
  let free = limit;
  for (const { id, liveTasks } of jobs) if (liveTasks > 0) free -= sharedStorageGb(state, id);
  const withheld: PendingJob[] = [];
  for (const { id, state: at, liveTasks } of jobs) {
    if (liveTasks > 0 || (at !== "pending" && at !== "accepted")) continue;
    const requested = sharedStorageGb(state, id);
    const resource = "shared_storage_gb";
    const reason = "InsufficientMemory";
    const lacks = requested > Math.max(0, free);
    const storage: Blocker = { reason, resource, requested, free: Math.max(0, free), limit };
    const blocker = requested > 0 && lacks ? storage : shards.take(state.specs.get(id)!);
    if (blocker) withheld.push({ jobId: id, blockers: [blocker] });
    else free -= requested;
  }
  return withheld;
}

/** Whether the job needs something that belongs to no node: shared storage, or parameter servers. */
export function needsShared(state: JobsState, id: string): boolean {
  return sharedStorageGb(state, id) > 0 || shardsWanted(state.specs.get(id)!) > 0;
}
