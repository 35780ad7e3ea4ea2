import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import { messagesAt } from "../../state-messages.ts";
import type { RequestJobCommand } from "../records/commands.ts";
import { isTerminal } from "../records/lifecycle.ts";
import type { JobRecord } from "../records/records.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

/** A user's request on a job; a request that is already fulfilled succeeds. */
export function requestJob(change: JobsTransaction, command: RequestJobCommand): ControlReply {
  const { jobId, request, ifIndex } = command;
  const job = change.state.jobs.get(jobId);
  if (!job) return refuse("not_found", `no job has the id ${jobId}`);
  if (ifIndex !== undefined && ifIndex !== job.changedIndex) {
    const message = messagesAt(change.version).changedJob(jobId, job.changedIndex, ifIndex);
    return refuse("precondition_failed", message);
  }
  switch (request) {
    case "cancel":
      return cancel(change, job);
    case "suspend":
      return suspend(change, job);
    case "resume":
      return resume(change, job);
    default:
      return refuse("invalid_value", `${JSON.stringify(request satisfies never)} is no request`);
  }
}

function cancel(change: JobsTransaction, job: JobRecord): ControlReply {
  if (job.state === "cancelled") return ACCEPTED;
  if (isTerminal(job.state)) return hasEnded(job);
  change.move(job, { type: "cancel" });
  return ACCEPTED;
}

function suspend(change: JobsTransaction, job: JobRecord): ControlReply {
  if (isTerminal(job.state) || job.state === "cancelling") return hasEnded(job);
  if (job.state !== "suspended") leaveWithGrace(change, job, { why: "suspend" });
  return ACCEPTED;
}

function resume(change: JobsTransaction, job: JobRecord): ControlReply {
  if (isTerminal(job.state) || job.state === "cancelling") return hasEnded(job);
  const isLeaving = job.state === "checkpointing" && job.leaving?.why === "suspend";
  if (isLeaving) {
    // It still leaves, but queues again instead of staying suspended.
    change.putJob({ ...job, leaving: { why: "preempt" }, changedIndex: change.now.index });
  } else change.move(job, { type: "resume" });
  return ACCEPTED;
}

function hasEnded({ id, state }: JobRecord): ControlReply {
  return refuse("conflict", `the job ${id} is ${state}`);
}

/** Makes the job leave its places, with the grace period of its spec for a checkpoint. */
export function leaveWithGrace(
  change: JobsTransaction,
  job: JobRecord,
  leaving: NonNullable<JobRecord["leaving"]>,
  latestMs = Number.POSITIVE_INFINITY,
): JobRecord {
  const { grace_seconds: grace } = change.state.specs.get(job.id)!.checkpoint_config;
  const byMs = Math.min(latestMs, change.now.atMs + grace * 1_000);
  return change.move(job, { type: "leave", leaving, byMs });
}
