import { type ControlReply, OK } from "../command.ts";
import type { Change } from "./change.ts";
import type { CommitPlanCommand, PlannedStart } from "./commands.ts";
import { isUnderWay } from "./lifecycle.ts";
import type { JobRecord, TaskRecord } from "./records.ts";
import { leaveWithGrace } from "./requests.ts";
import { placeShards } from "./shard-places.ts";

/** Ends the id under which the scheduler places a recovering job's lost tasks. */
export const RECOVERY_SUFFIX = "+recovery";

/** Carries out what still holds of a plan; the rest is dropped, and the next plan sees why. */
export function commitPlan(change: Change, plan: CommitPlanCommand): ControlReply {
  const { jobs } = change.state;
  for (const { jobId, message } of plan.unsatisfiable) {
    const job = jobs.get(jobId);
    if (job?.state !== "accepted") continue;
    change.move(job, { type: "doomed", failure: { reason: "Unsatisfiable", message } });
  }
  for (const jobId of plan.admitted) {
    const job = jobs.get(jobId);
    if (job) change.move(job, { type: "admitted" });
  }
  for (const jobId of plan.expired) {
    const job = jobs.get(jobId);
    if (job && isUnderWay(job.state)) expire(change, job);
  }
  for (const { victimId, forJobId } of plan.preemptions) {
    const victim = jobs.get(victimId);
    const mayLeave = change.state.specs.get(victimId)?.resources.preemptible;
    if (victim?.state === "running" && mayLeave) {
      leaveWithGrace(change, victim, { why: "preempt", forJobId });
    }
  }
  for (const start of plan.starts) startJob(change, plan, start);
  setPromise(change, plan.promise);
  return OK;
}

function expire(change: Change, job: JobRecord): void {
  const ranMs = change.now.atMs - (job.startedAtMs ?? job.sinceMs);
  const message = `it ran for ${Math.round(ranMs / 1_000)} s, which is its bound`;
  change.move(job, { type: "doomed", failure: { reason: "DeadlineExceeded", message } });
}

function startJob(change: Change, plan: CommitPlanCommand, start: PlannedStart): void {
  const isRecovery = start.jobId.endsWith(RECOVERY_SUFFIX);
  const id = isRecovery ? start.jobId.slice(0, -RECOVERY_SUFFIX.length) : start.jobId;
  const job = change.state.jobs.get(id);
  if (!job || !(isRecovery ? job.state === "recovering" : mayStart(change, job))) return;
  const ranks = isRecovery ? missingRanks(change, job) : [...Array(job.tasks).keys()];
  const { placements } = start;
  const request = change.index.requestOf(job);
  const taken = change.index.capacity;
  if (ranks.length === 0) return;
  const shards = isRecovery ? job.shards : placeShards(change, job);
  if (shards === "none") return;
  if (taken.take(request, ranks.length, placements, plan.overcommitRatio)) return;
  if (!isRecovery) change.dropTasks(job);
  const byMs = change.now.atMs + plan.acknowledgeMs;
  const started = change.move(job, { type: "reserved", tasks: ranks.length, byMs, shards });
  for (const [at, { nodeId, devices }] of placements.entries()) {
    const task: TaskRecord = {
      jobId: id,
      attempt: started.attempt,
      rank: ranks[at]!,
      nodeId,
      devices,
      gpuMilli: request.gpus === 0 ? 0 : request.gpuMilli,
      phase: "reserved",
    };
    change.startTask(started, task);
  }
}

function mayStart({ now }: Change, job: JobRecord): boolean {
  if (job.state !== "pending" || job.liveTasks > 0 || job.waitingFor.length > 0) return false;
  return (job.notBeforeMs ?? 0) <= now.atMs;
}

/** Ranks of a recovering job that were lost and are surely over. */
export function missingRanks(change: Pick<Change, "tasksOf">, job: JobRecord): readonly number[] {
  return change
    .tasksOf(job)
    .filter(({ phase, exit }) => phase === "exited" && exit?.reason === "NodeLost")
    .map(({ rank }) => rank);
}

/** At most one job holds a promise. */
function setPromise(change: Change, promise: CommitPlanCommand["promise"]): void {
  const { jobs } = change.state;
  const holder = jobs.get(change.index.promised ?? "");
  if (holder && holder.id !== promise?.jobId) {
    change.putJob({ ...holder, promisedStartMs: undefined });
  }
  const job = jobs.get(promise?.jobId ?? "");
  if (job?.state !== "pending" || job.promisedStartMs === promise?.startAtMs) return;
  change.putJob({ ...job, promisedStartMs: promise?.startAtMs, changedIndex: change.now.index });
}
