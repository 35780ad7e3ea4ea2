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
  type TaskPlacement,
  type TaskRequest,
} from "@heddle/scheduler/model";
import type { SchedulingInput } from "@heddle/scheduler/round";
import type { ControlState } from "../state.ts";
import { usageAt } from "./account-changes.ts";
import type { JobIndex } from "./job-index.ts";
import { isUnderWay } from "./lifecycle.ts";
import { missingRanks, RECOVERY_SUFFIX } from "./plan-commit.ts";
import { type JobRecord, type ProjectRecord, type TaskRecord, taskKey } from "./records.ts";
import { ShardRoom } from "./shard-places.ts";
import { servingRequest } from "./task-request.ts";

/** Whose quota the replicas of deployed models count against. */
const SERVING_PROJECT = "default";
const MS_PER_HOUR = 3_600_000;
const GPU_MILLI_MS_PER_HOUR = 1_000 * MS_PER_HOUR;

/** The state as the scheduler sees it, and the jobs that it does not see because of shared storage. */
export interface SchedulingView {
  readonly input: SchedulingInput;
  readonly withheld: readonly PendingJob[];
}

/** What the scheduler decides on. Pure; the same state and time give the same input. */
export function schedulingInput(
  state: ControlState,
  index: JobIndex,
  at: { readonly index: number; readonly nowMs: number },
): SchedulingView {
  const snapshot = {
    index: at.index,
    nodes: [...state.nodes.values()].map((node) => index.snapshotOf(node)),
    running: [...runningJobs(state, index), ...servingJobs(state)],
    projects: [...state.projects.values()].map((project) => projectState(project, at.nowMs)),
  };
  const { queue, withheld } = queuedJobs(state, index);
  const settings = schedulerSettings(state);
  return { input: { snapshot, queue, nowMs: at.nowMs, settings }, withheld };
}

/** The cluster's settings and queues as the scheduler's. */
function schedulerSettings(state: ControlState): SchedulerSettings {
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

function settingOf(state: ControlState, name: SettingName): number {
  return state.settings.get(name)?.value ?? CLUSTER_SETTINGS[name].default;
}

/** The job as the scheduler places it: the whole gang, or a recovering one's lost tasks. */
export function queuedJob(state: ControlState, index: JobIndex, job: JobRecord): QueuedJob {
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

/** Every job of which a task may still hold something, and for how long those stay that leave. */
function runningJobs(state: ControlState, index: JobIndex): RunningJob[] {
  const places = new Map<string, TaskPlacement[]>();
  for (const keys of index.tasksByNode.values()) {
    for (const key of keys) {
      const task = state.tasks.get(key)!;
      const own = places.get(task.jobId) ?? [];
      own.push(task);
      places.set(task.jobId, own);
    }
  }
  return [...places].map(([id, placements]) => {
    const job = state.jobs.get(id)!;
    return { ...runningJob(state, index, job), tasks: placements.length, placements };
  });
}

function runningJob(state: ControlState, index: JobIndex, job: JobRecord): RunningJob {
  const { waitingFor: _, notBeforeMs: __, sameRack: ___, ...traits } = queuedJob(state, index, job);
  const startedAtMs = job.startedAtMs ?? job.sinceMs;
  const evicting = isUnderWay(job.state)
    ? undefined
    : { forJobId: job.leaving?.forJobId ?? "", byMs: job.dueMs ?? leavesByMs(state, job) };
  return {
    ...traits,
    placements: [],
    startedAtMs,
    checkpointedAtMs: Math.max(startedAtMs, job.checkpoint?.atMs ?? 0),
    expectedEndMs: expectedEndMs(job, startedAtMs),
    evicting,
  };
}

/** When the tasks of an attempt that is over are gone: those of lost nodes once they are fenced. */
function leavesByMs(state: ControlState, job: JobRecord): number {
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

/** Replicas that hold devices: never evicted for training, and in the same quota. */
function servingJobs(state: ControlState): RunningJob[] {
  const jobs: RunningJob[] = [];
  for (const { offer, serving, joinedAtMs } of state.nodes.values()) {
    for (const { deployment, devices } of serving) {
      jobs.push({
        id: `serving:${deployment}@${offer.id}`,
        project: SERVING_PROJECT,
        queue: "default",
        kind: "serving",
        qosLevel: "guaranteed",
        priority: 0,
        preemptible: false,
        tasks: 1,
        request: servingRequest(devices.length),
        placements: [{ nodeId: offer.id, devices }],
        startedAtMs: joinedAtMs,
        checkpointedAtMs: joinedAtMs,
      });
    }
  }
  return jobs;
}

function projectState({ name, weight, quota, usage }: ProjectRecord, nowMs: number): ProjectState {
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

/** Jobs that wait, accepted ones among them: a plan admits and starts them at once. */
function queuedJobs(
  state: ControlState,
  index: JobIndex,
): { queue: readonly QueuedJob[]; withheld: readonly PendingJob[] } {
  const queue: QueuedJob[] = [];
  const withheld: PendingJob[] = [];
  const storage = new SharedStorage(state, index);
  const shards = new ShardRoom(state, index);
  for (const id of index.live) {
    const job = state.jobs.get(id)!;
    if (job.state === "recovering") {
      const lost = missingRanks({ tasksOf: (of) => tasksOf(state, of) }, job).length;
      if (lost === 0) continue;
      const queued = queuedJob(state, index, job);
      queue.push({ ...queued, id: `${id}${RECOVERY_SUFFIX}`, tasks: lost });
    } else if ((job.state === "pending" || job.state === "accepted") && job.liveTasks === 0) {
      const blocker = shards.take(state.specs.get(id)!) ?? storage.take(job);
      if (blocker) withheld.push({ jobId: id, blockers: [blocker] });
      else queue.push(queuedJob(state, index, job));
    }
  }
  return { queue, withheld };
}

function tasksOf(state: ControlState, job: JobRecord): TaskRecord[] {
  const tasks: TaskRecord[] = [];
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(taskKey(job.id, job.attempt, rank));
    if (task) tasks.push(task);
  }
  return tasks;
}

/** The storage that belongs to no node: what running jobs leave of it goes to the oldest that wait. */
class SharedStorage {
  readonly #state: ControlState;
  readonly #limitGb: number;
  #freeGb: number;

  constructor(state: ControlState, index: JobIndex) {
    this.#state = state;
    this.#limitGb = settingOf(state, "shared_storage_gb");
    this.#freeGb = this.#limitGb;
    for (const id of index.live) {
      if (state.jobs.get(id)!.liveTasks > 0) this.#freeGb -= this.#wantedGb(id);
    }
  }

  take(job: JobRecord): Blocker | undefined {
    const requested = this.#wantedGb(job.id);
    const free = Math.max(0, this.#freeGb);
    if (requested <= free) {
      this.#freeGb -= requested;
      return undefined;
    }
    const limit = this.#limitGb;
    return { reason: "InsufficientMemory", resource: "shared_storage_gb", requested, free, limit };
  }

  #wantedGb(id: string): number {
    return this.#state.specs.get(id)!.resources.shared_storage_gb ?? 0;
  }
}
