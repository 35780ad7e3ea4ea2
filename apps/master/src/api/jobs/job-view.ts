import {
  type Job,
  type JobFailure,
  type JobSummary,
  type JobTask,
  phaseOf,
} from "@heddle/contracts/api/job-replies";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { desiredTaskState } from "@heddle/control/jobs/records/desired-task-state";
import { evictedFor } from "@heddle/control/jobs/records/logged-plan";
import { registrationOf } from "@heddle/control/jobs/records/model-registration";
import {
  type JobFailureRecord,
  type JobRecord,
  type Leaving,
  type ProgressRecord,
  type TaskExitRecord,
  type TaskRecord,
  taskKey,
} from "@heddle/control/jobs/records/records";
import { reservationOf } from "@heddle/control/jobs/records/renamed-fields";
import { executorOf } from "@heddle/control/jobs/records/task-request";
import type { ControlState } from "@heddle/control/state";
import type { SeenProgress } from "../../nodes/progress/progress-book.ts";
import { isoOrNull } from "../../orchestration/scheduling/explanation-view.ts";
import { viewProgress } from "./progress-view.ts";

/** A job in a list; times are ISO 8601 UTC. */
export function viewJob(
  state: ControlState,
  job: JobRecord,
  seen: SeenProgress | undefined,
): JobSummary {
  const spec = state.specs.get(job.id)!;
  return {
    id: job.id,
    object: "job",
    name: job.name,
    project: job.project,
    queue: job.queue,
    labels: spec.labels,
    algorithm: spec.algorithm ?? null,
    state: job.state,
    phase: phaseOf(job.state),
    tasks: job.tasks,
    gpu_count: spec.resources.gpu_count,
    priority: spec.resources.priority,
    qos_level: spec.resources.qos_level,
    attempt: job.attempt,
    submitted_at: new Date(job.submittedAtMs).toISOString(),
    since: new Date(job.sinceMs).toISOString(),
    first_started_at: isoOrNull(job.firstStartedAtMs),
    started_at: isoOrNull(job.startedAtMs),
    ended_at: isoOrNull(job.endedAtMs),
    progress: seen ? viewProgress(job, seen) : null,
    failure: job.failure ? viewFailure(state, job.failure) : null,
  };
}

function viewLeaving(leaving: Leaving): NonNullable<Job["leaving"]> {
  const entry = evictedFor(leaving);
  const isReplica = entry?.kind === "replica";
  return {
    why: leaving.why,
    for_job: entry && !isReplica ? entry.jobId : null,
    for_deployment: isReplica ? entry.deployment : null,
  };
}

/** All of a job except why it waits. */
export function viewWholeJob(
  state: ControlState,
  job: JobRecord,
  seen: SeenProgress | undefined,
): Omit<Job, "explanation"> {
  const spec = state.specs.get(job.id)!;
  return {
    ...viewJob(state, job, seen),
    index: job.changedIndex,
    failures: job.failures,
    losses: job.losses,
    preemptions: job.preemptions,
    live_tasks: job.liveTasks,
    waiting_for: job.waitingFor,
    leaving: job.leaving ? viewLeaving(job.leaving) : null,
    due_at: isoOrNull(job.dueMs),
    not_before: isoOrNull(job.notBeforeMs),
    promised_start: isoOrNull(reservationOf(job).startMs),
    checkpoint: job.checkpoint
      ? {
          name: job.checkpoint.name,
          attempt: job.checkpoint.attempt,
          step: job.checkpoint.step ?? null,
          at: isoOrNull(job.checkpoint.atMs),
        }
      : null,
    executor: executorOf(spec),
    training: executorOf(spec) === "training" ? viewTraining(state, job, seen?.latest) : null,
    model: viewModelOf(job, spec),
    task_list: tasksOf(state, job).map((task) => viewTask(state, job, task)),
    spec,
  };
}

/** A training job's configuration, and the locations of its shards. */
function viewTraining(
  { servers }: ControlState,
  { shards }: JobRecord,
  progress: ProgressRecord | undefined,
) {
  return {
    backend: progress?.backend ?? null,
    device: progress?.device ?? null,
    bytes_pushed: progress?.bytesPushed ?? null,
    shards: (shards ?? []).map((id, shard) => {
      const server = servers.get(id);
      const { name = null, address = null, state = "forgotten" } = server ?? {};
      return { shard, parameter_server: id, name, address, state };
    }),
  };
}

/** The model id under which it is, or will be, served; null for none. */
function viewModelOf({ model }: JobRecord, spec: SubmitJob): Job["model"] {
  const wanted = registrationOf(spec);
  if (!wanted) return null;
  const state = model ? (model.fault === undefined ? "registered" : "failed") : "pending";
  return { id: wanted.modelId, state, message: model?.fault ?? null };
}

function tasksOf(state: ControlState, job: JobRecord): TaskRecord[] {
  const tasks: TaskRecord[] = [];
  for (let rank = 0; rank < job.tasks; rank++) {
    const task = state.tasks.get(taskKey(job.id, job.attempt, rank));
    if (task) tasks.push(task);
  }
  return tasks;
}

function viewTask(state: ControlState, job: JobRecord, task: TaskRecord): JobTask {
  const node = state.nodes.get(task.nodeId);
  return {
    rank: task.rank,
    attempt: task.attempt,
    node: task.nodeId,
    node_name: node?.offer.name ?? null,
    devices: task.devices,
    gpu_milli: task.gpuMilli,
    simulated: node?.offer.simulated ?? false,
    phase: task.phase,
    wanted: desiredTaskState(job, task).order,
    exit: task.exit ? viewExit(task.exit) : null,
  };
}

function viewExit({ reason, exitCode, signal, message, endedAtMs }: TaskExitRecord) {
  return {
    reason: reason ?? null,
    exit_code: exitCode ?? null,
    signal: signal ?? null,
    message: message ?? "",
    ended_at: isoOrNull(endedAtMs),
  };
}

/** A failure with the failed task's last output lines, if available. */
export function viewFailure({ nodes }: ControlState, failure: JobFailureRecord): JobFailure {
  const { nodeId } = failure;
  return {
    reason: failure.reason,
    cause: failure.cause ?? null,
    message: failure.message,
    exit_code: failure.exitCode ?? null,
    signal: failure.signal ?? null,
    rank: failure.rank ?? null,
    node: nodeId ?? null,
    node_name: (nodeId !== undefined && nodes.get(nodeId)?.offer.name) || null,
    last_lines: failure.lastLines ?? [],
  };
}
