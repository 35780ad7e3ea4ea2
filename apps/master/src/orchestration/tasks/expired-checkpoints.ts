import type { ForgetCheckpoints } from "@heddle/contracts/generated/heddle/v1/ForgetCheckpoints";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { JobsState } from "@heddle/control/jobs/records/records";

/** Retention of a failed job's checkpoints, shorter than that of the job. */
const KEEP_FAILED_MS = 6 * 24 * 3_600_000;

/**
 * The jobs whose checkpoints are no longer needed. An ended job cannot resume, but a failed one's
 * may help to analyse it. A job unknown to these masters may be another cluster's: the worker
 * decides. Undefined if all are needed.
 */
export function expiredCheckpoints(
  { jobs }: Pick<JobsState, "jobs">,
  ids: readonly string[],
  nowMs: number,
): ForgetCheckpoints | undefined {
  const over = {
    jobIds: [] as string[],
    emptyJobIds: [] as string[],
    unknownJobIds: [] as string[],
  };
  for (const id of ids) {
    const job = jobs.get(id);
    if (!job) over.unknownJobIds.push(id);
    if (!job || !isTerminal(job.state) || job.liveTasks > 0) continue;
    const isKept = job.state === "failed" && nowMs - (job.endedAtMs ?? 0) < KEEP_FAILED_MS;
    (isKept ? over.emptyJobIds : over.jobIds).push(id);
  }
  return Object.values(over).some(({ length }) => length > 0) ? over : undefined;
}
