import type { CapacityRefusal } from "@heddle/scheduler/cluster/capacity-book";
import { runtimeBoundMs } from "@heddle/scheduler/cluster/precedence";
import type { PlanEntry } from "@heddle/scheduler/plan-entry";
import { ACCEPTED, type ControlReply, type RefusedStart } from "../../command.ts";
import { BOUNDED_FROM, hasRoomForTasks } from "../../state-limits.ts";
import { messagesAt } from "../../state-messages.ts";
import type { CommitPlanCommand, PlannedStart, RankedJob } from "../records/commands.ts";
import { isUnderWay } from "../records/lifecycle.ts";
import { leavingFor, logEntry } from "../records/logged-plan.ts";
import type { JobRecord, TaskRecord } from "../records/records.ts";
import { crashesTakenOver, missingRanks } from "../records/recovery.ts";
import { NO_RESERVATION, reservationFields, reservationOf } from "../records/renamed-fields.ts";
import { sharedRequest } from "../records/task-request.ts";
import { dividesGpus, replicaClaim } from "../scheduling/replica-claims.ts";
import { runningEntry, sharedSupply } from "../scheduling/scheduling-input.ts";
import { placeShards } from "../scheduling/shard-places.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";
import { QuotaCheck, type QuotaRefusal } from "./quota-check.ts";
import { leaveWithGrace } from "./requests.ts";

type PlannedPreemption = CommitPlanCommand["preemptions"][number];
/** A plan entry that places tasks of a job. */
type JobEntry = Extract<PlanEntry, { jobId: string }>;

/**
 * Applies the decisions of a plan that are still valid. The reply names the others, so that the
 * next plan can consider them.
 */
export function commitPlan(change: JobsTransaction, plan: CommitPlanCommand): ControlReply {
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
    if (job && isPastBound(change, plan, job)) expire(change, job);
  }
  const refused: RefusedStart[] = [];
  for (const preemption of plan.preemptions) {
    const why = preempt(change, preemption);
    if (why) refused.push({ ...logEntry(preemption.forEntry, change.version), why });
  }
  const quotas = plan.limits && new QuotaCheck(change, plan.limits);
  for (const start of plan.starts) {
    const why = startJob(change, plan, start, quotas);
    if (why) refused.push({ ...logEntry(start.entry, change.version), why });
  }
  setRanks(change, plan);
  return refused.length > 0 ? { ok: true, refused } : ACCEPTED;
}

/**
 * Running jobs leave with a checkpoint, starting ones at once. No job is preempted for one that has
 * started, or was cancelled or suspended since.
 */
function preempt(
  change: JobsTransaction,
  { victimId, forEntry }: PlannedPreemption,
): "victim" | "not_waiting" | undefined {
  const victim = change.state.jobs.get(victimId);
  const mayLeave = change.state.specs.get(victimId)?.resources.preemptible;
  if (!victim || !mayLeave || !isUnderWay(victim.state)) return "victim";
  const waits =
    forEntry.kind === "replica"
      ? replicaClaim(change.state, forEntry.deployment) !== undefined
      : waitingJob(change, forEntry) !== undefined;
  if (!waits) return "not_waiting";
  leaveWithGrace(change, victim, leavingFor(forEntry, change.version));
  return undefined;
}

/** Checks the present attempt, which may be newer than the one that the plan saw. */
function isPastBound(change: JobsTransaction, plan: CommitPlanCommand, job: JobRecord): boolean {
  if (!isUnderWay(job.state)) return false;
  const entry = runningEntry(change.state, change.index, job);
  if (!entry || !plan.limits) return true;
  return entry.startedAtMs + runtimeBoundMs(entry, plan.limits) <= plan.atMs;
}

function expire(change: JobsTransaction, job: JobRecord): void {
  const ranMs = change.now.atMs - (job.startedAtMs ?? job.sinceMs);
  const message = messagesAt(change.version).pastTimeLimit(Math.round(ranMs / 1_000));
  change.move(job, { type: "doomed", failure: { reason: "DeadlineExceeded", message } });
}

/** Why a start is no longer valid. */
type StartRefusal =
  | CapacityRefusal
  | QuotaRefusal
  | "not_waiting"
  | "no_parameter_servers"
  | "state_full"
  | "shared_storage";

/** Starts the job, or returns the reason and changes nothing. */
function startJob(
  change: JobsTransaction,
  plan: CommitPlanCommand,
  start: PlannedStart,
  quotas: QuotaCheck | undefined,
): StartRefusal | undefined {
  const { entry } = start;
  if (entry.kind === "replica") return placeReplica(change, plan, start, entry.deployment, quotas);
  const waiting = waitingJob(change, entry);
  if (!waiting) return "not_waiting";
  const { job, ranks } = waiting;
  const isRecovery = job.state === "recovering";
  const { placements } = start;
  const request = change.index.requestOf(job);
  const shards = isRecovery ? job.shards : placeShards(change, job);
  if (shards === "none") return "no_parameter_servers";
  if (!isRecovery && lacksStorage(change, job)) return "shared_storage";
  const isRoomy =
    change.version < BOUNDED_FROM || hasRoomForTasks(change, ranks.length, shards?.length ?? 0);
  if (!isRoomy) return "state_full";
  const { capacity } = change.index;
  const why =
    quotas?.refusal(job, ranks.length) ??
    capacity.take(request, ranks.length, placements, plan.overcommitRatio);
  if (why) return why;
  quotas?.charge(job, ranks.length);
  const before = new Map(change.tasksOf(job).map((task) => [task.rank, task]));
  if (!isRecovery) change.dropTasks(job);
  const byMs = change.now.atMs + plan.acknowledgeMs;
  const started = change.move(job, { type: "reserved", tasks: ranks.length, byMs, shards });
  for (const [at, { nodeId, devices }] of placements.entries()) {
    const rank = ranks[at]!;
    const replaced = before.get(rank);
    const task: TaskRecord = {
      jobId: job.id,
      attempt: started.attempt,
      rank,
      ...(isRecovery && { incarnation: (replaced?.incarnation ?? 0) + 1 }),
      ...crashesTakenOver(replaced),
      nodeId,
      devices,
      gpuMilli: request.gpus === 0 ? 0 : request.gpuMilli,
      phase: "reserved",
    };
    change.startTask(started, task);
  }
  return undefined;
}

function lacksStorage({ state, index }: JobsTransaction, { id }: JobRecord): boolean {
  const neededMb = sharedRequest(state.specs.get(id)!)?.storageMb ?? 0;
  return neededMb > 0 && neededMb > sharedSupply(state, index).free.storageMb;
}

/** Reserves the places of a replica, or of its stages; the masters' placement loads it there. */
function placeReplica(
  change: JobsTransaction,
  plan: CommitPlanCommand,
  { placements }: PlannedStart,
  deployment: string,
  quotas: QuotaCheck | undefined,
): StartRefusal | undefined {
  const claim = replicaClaim(change.state, deployment);
  if (!claim) return "not_waiting";
  const why =
    quotas?.claimRefusal(claim) ??
    change.index.capacity.take(claim.request, claim.tasks, placements, plan.overcommitRatio);
  if (why) return why;
  quotas?.chargeClaim(claim);
  const isDivided = dividesGpus(change.state, deployment);
  if (isDivided) change.state.stageClaims.delete(deployment);
  for (const { nodeId, devices } of placements) {
    const place = { deployment, nodeId, devices, grantedAtMs: change.now.atMs };
    change.placeReplica(isDivided ? { ...place, stage: true } : place);
  }
  return undefined;
}

/** The job that a plan entry means and the ranks to place, if there are any. */
function waitingJob(
  change: JobsTransaction,
  { kind, jobId }: JobEntry,
): { readonly job: JobRecord; readonly ranks: readonly number[] } | undefined {
  const job = change.state.jobs.get(jobId);
  if (!job) return undefined;
  if (kind === "job")
    return mayStart(change, job) ? { job, ranks: [...Array(job.tasks).keys()] } : undefined;
  const ranks = job.state === "recovering" ? missingRanks(change, job) : [];
  return ranks.length > 0 ? { job, ranks } : undefined;
}

function mayStart({ now }: JobsTransaction, job: JobRecord): boolean {
  if (job.state !== "pending" || job.liveTasks > 0 || job.waitingFor.length > 0) return false;
  return (job.notBeforeMs ?? 0) <= now.atMs;
}

function isOfJob(entry: PlanEntry): entry is JobEntry {
  return entry.kind !== "replica";
}

/** A job that the plan does not rank loses its reservation. */
function setRanks(change: JobsTransaction, plan: CommitPlanCommand): void {
  const { ranked, reservation, starts } = plan;
  const { jobs } = change.state;
  const planned: readonly RankedJob[] = ranked ?? (reservation ? [reservation] : []);
  // A job whose start was just refused keeps its rank for the next plan.
  const started = ranked ? starts.map(({ entry }) => entry).filter(isOfJob) : [];
  const stay = new Set([...planned, ...started].map(({ jobId }) => jobId));
  for (const id of [...change.index.ranked].sort()) {
    const job = jobs.get(id);
    if (job && !stay.has(id)) change.putJob({ ...job, ...NO_RESERVATION });
  }
  let last = -1;
  for (const { jobId, startAtMs } of planned) {
    const job = jobs.get(jobId);
    if (job?.state !== "pending" && job?.state !== "recovering") continue;
    const known = reservationOf(job);
    // A rank stays as long as it is greater than the one before it.
    const rank = ranked && Math.max(known.rank ?? 0, last + 1);
    last = rank ?? last;
    const isMoved = known.startMs !== startAtMs;
    if (!isMoved && known.rank === rank) continue;
    const changedIndex = isMoved ? change.now.index : job.changedIndex;
    const fields = reservationFields({ startMs: startAtMs, rank }, change.version);
    change.putJob({ ...job, ...fields, changedIndex });
  }
}
