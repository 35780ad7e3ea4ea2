import { AppError } from "@heddle/base/errors";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import type { ControlState } from "@heddle/control/state";
import {
  type Caller,
  callerText,
  type JOB_PERMISSIONS,
  seesJobsOf,
} from "../../http/identity/caller.ts";

/** States in which a job waits for a place and can be explained. */
export const WAITING: ReadonlySet<JobRecord["state"]> = new Set([
  "accepted",
  "pending",
  "preempted",
  "retrying",
  "recovering",
]);

type JobPermission = (typeof JOB_PERMISSIONS)[number];

/**
 * The job, if the caller has the permission in its project. A job of a project that is not the
 * caller's is `not_found`, in the same words as one that does not exist.
 */
export function jobOfCaller(
  { jobs }: Pick<ControlState, "jobs">,
  id: string,
  caller: Caller,
  permission: JobPermission,
): JobRecord {
  const job = jobs.get(id);
  if (!job || !seesJobsOf(caller, job.project)) throw noJob(id);
  requireInProject(caller, permission, job.project);
  return job;
}

/** Logs outlive their jobs: then only those read them who may read the jobs of all projects. */
export function requireLogsOf(state: Pick<ControlState, "jobs">, id: string, caller: Caller): void {
  const isKnown = state.jobs.has(id) || !caller.grants.mayEverywhere("jobs:read");
  if (isKnown) jobOfCaller(state, id, caller, "jobs:read");
}

export function noJob(id: string): AppError {
  return new AppError("not_found", `No job has the id ${id}.`);
}

/** Throws `permission_denied`; the same for a project that does not exist. */
export function requireInProject(
  caller: Caller,
  permission: JobPermission | "secrets:use",
  project: string,
  param?: string,
): void {
  if (caller.grants.may(permission, project)) return;
  const message = `${callerText(caller)} lacks the permission ${permission} in the project ${project}.`;
  throw new AppError("permission_denied", message, { param });
}
