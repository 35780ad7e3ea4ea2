import { createHash } from "node:crypto";
import type { Job } from "@heddle/contracts/api/job-replies";
import type { TrainingJobSpec } from "@heddle/contracts/kubernetes/custom-resources";
import {
  type ConditionNow,
  type CustomResource,
  type ResourceStatus,
  SPEC_CURRENT,
} from "../kubernetes/custom-resource.ts";

export interface TrainingJobStatus extends ResourceStatus {
  readonly jobId?: string | undefined;
  /** The digest of the spec that was submitted. */
  readonly specDigest?: string | undefined;
  readonly suspended?: boolean | undefined;
  readonly completionTime?: string | null | undefined;
}

/** Fields that a job's object may change. */
const CHANGEABLE: ReadonlySet<string> = new Set(["suspend", "ttl_seconds_after_finished"]);

/** A digest of what cannot be changed; the API server gives the fields always in the same order. */
function specDigest(spec: TrainingJobSpec): string {
  const fixed = Object.entries(spec).filter(([name]) => !CHANGEABLE.has(name));
  return createHash("sha256").update(JSON.stringify(fixed)).digest("hex").slice(0, 16);
}

export type TrainingJobObject = CustomResource<TrainingJobSpec, TrainingJobStatus>;

const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled"]);

export function isEnded({ state }: Pick<Job, "state">): boolean {
  return ENDED.has(state);
}

/** Whether the object's job is known to have ended, though the cluster may have forgotten it. */
export function isFinished({ status }: TrainingJobObject): boolean {
  return ENDED.has(status?.phase?.toLowerCase() ?? "");
}

/** The status of an object whose job this is; null removes a field. */
export function statusOfJob(job: Job, { spec, status }: TrainingJobObject) {
  const { progress, failure } = job;
  const blocker = job.explanation?.blockers[0];
  const reason = failure?.reason ?? blocker?.reason ?? null;
  const message = failure?.message ?? blocker?.message ?? progress?.message ?? null;
  return {
    phase: capitalized(job.state),
    reason,
    message,
    jobId: job.id,
    project: job.project,
    specDigest: status?.specDigest ?? specDigest(spec),
    suspended: job.state === "suspended",
    progress: typeof progress?.progress === "number" ? percent(progress.progress) : null,
    step: progress?.step ?? null,
    totalSteps: progress?.total_steps ?? null,
    loss: progress?.loss ?? null,
    attempt: job.attempt,
    tasks: job.tasks,
    gpus: job.gpu_count,
    startTime: job.first_started_at,
    completionTime: job.ended_at,
    remaining: isEnded(job) ? null : remainingOf(progress?.expected_end ?? null),
    conditions: [...conditionsOfJob(job, reason, message ?? ""), specCondition(spec, status)],
  };
}

function conditionsOfJob(job: Job, reason: string | null, message: string): ConditionNow[] {
  const { state } = job;
  const why = { reason: reason ?? capitalized(state), message };
  const failed = state === "failed" || state === "cancelled";
  return [
    { type: "Accepted", status: "True", reason: "Submitted", message: `the job is ${job.id}` },
    { type: "Running", status: truth(state === "running"), ...why },
    { type: "Suspended", status: truth(state === "suspended"), ...why },
    { type: "Complete", status: truth(state === "succeeded"), ...why },
    { type: "Failed", status: truth(failed), ...why },
  ];
}

/** Whether the job has the object's spec: a change of most fields has no effect. */
function specCondition(spec: TrainingJobSpec, status?: TrainingJobStatus): ConditionNow {
  const isCurrent = specDigest(spec) === (status?.specDigest ?? specDigest(spec));
  if (isCurrent) return { type: SPEC_CURRENT, status: "True", reason: "Submitted", message: "" };
  const message = `the job keeps the spec that it was submitted with; only ${[...CHANGEABLE].join(" and ")} can be changed`;
  return { type: SPEC_CURRENT, status: "False", reason: "Immutable", message };
}

function truth(value: boolean): "True" | "False" {
  return value ? "True" : "False";
}

function percent(share: number): string {
  return `${Math.floor(share * 100)}%`;
}

/** The time until then, in the largest unit that is not 0. */
function remainingOf(end: string | null): string | null {
  if (end === null) return null;
  const seconds = Math.max(0, Math.round((Date.parse(end) - Date.now()) / 1_000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes}m` : `${Math.round(minutes / 60)}h`;
}

function capitalized(state: string): string {
  return `${state.charAt(0).toUpperCase()}${state.slice(1)}`;
}
