import type { PlanEntry } from "@heddle/scheduler/plan-entry";
import { PLAN_ENTRIES, STANDARD_TERMS } from "../../cluster-version.ts";
import type { CommitPlanCommand, LoggedEntry, LoggedPlan } from "./commands.ts";
import type { Leaving } from "./records.ts";

/**
 * Plan entries in the log, in replies and in records. Before PLAN_ENTRIES an entry was one string: the
 * id of a job, `JOB+recovery` or `serving:DEPLOYMENT`. Only this file knows that form.
 */
const RECOVERY_SUFFIX = "+recovery";
const REPLICA_PREFIX = "serving:";

export function logEntry(entry: PlanEntry, version: number): LoggedEntry {
  return version >= PLAN_ENTRIES ? { entry } : { jobId: entryId(entry) };
}

export function readEntry(logged: LoggedEntry): PlanEntry {
  return "entry" in logged ? logged.entry : parseEntryId(logged.jobId);
}

/** The plan for the log of a cluster of that version. */
export function logPlan(plan: CommitPlanCommand, version: number): LoggedPlan {
  if (version >= STANDARD_TERMS) return plan;
  const { ranked: line, reservation: promise, ...rest } = plan;
  if (version >= PLAN_ENTRIES) return { ...rest, line, promise };
  return {
    ...rest,
    line,
    promise,
    starts: plan.starts.map(({ entry, placements }) => ({ jobId: entryId(entry), placements })),
    preemptions: plan.preemptions.map(({ victimId, forEntry }) => {
      return { victimId, forJobId: entryId(forEntry) };
    }),
  };
}

export function readPlan(logged: LoggedPlan): CommitPlanCommand {
  const { starts, preemptions, line, promise, ...rest } = logged;
  const { ranked = line, reservation = promise } = rest;
  return {
    ...rest,
    starts: starts.map((start) => ({ entry: readEntry(start), placements: start.placements })),
    preemptions: preemptions.map((each) => {
      const { victimId } = each;
      return {
        victimId,
        forEntry: "forEntry" in each ? each.forEntry : parseEntryId(each.forJobId),
      };
    }),
    ranked: ranked?.map((job) => ({ ...job, jobId: withoutSuffix(job.jobId) })),
    reservation: reservation && { ...reservation, jobId: withoutSuffix(reservation.jobId) },
  };
}

/** The record of a job that is evicted for the entry. */
export function leavingFor(entry: PlanEntry, version: number): Leaving {
  if (version >= PLAN_ENTRIES) return { why: "preempt", forEntry: entry };
  return { why: "preempt", forJobId: entryId(entry) };
}

/** What a job is evicted for, if it is. */
export function evictedFor(leaving: Leaving | undefined): PlanEntry | undefined {
  const { forEntry, forJobId } = leaving ?? {};
  return forEntry ?? (forJobId === undefined ? undefined : parseEntryId(forJobId));
}

function entryId(entry: PlanEntry): string {
  if (entry.kind === "replica") return `${REPLICA_PREFIX}${entry.deployment}`;
  return entry.kind === "recovery" ? `${entry.jobId}${RECOVERY_SUFFIX}` : entry.jobId;
}

function parseEntryId(id: string): PlanEntry {
  if (id.startsWith(REPLICA_PREFIX)) {
    return { kind: "replica", deployment: id.slice(REPLICA_PREFIX.length) };
  }
  const jobId = withoutSuffix(id);
  return { kind: jobId === id ? "job" : "recovery", jobId };
}

/** Ranked recovering jobs had the suffix too. */
function withoutSuffix(id: string): string {
  return id.endsWith(RECOVERY_SUFFIX) ? id.slice(0, -RECOVERY_SUFFIX.length) : id;
}
