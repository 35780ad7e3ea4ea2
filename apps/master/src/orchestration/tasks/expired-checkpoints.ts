import type { ForgetCheckpoints } from "@heddle/contracts/generated/heddle/v1/ForgetCheckpoints";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { JobsState } from "@heddle/control/jobs/records/records";

/** How long what a failed job has saved is kept, less than the job itself is. */
const KEEP_FAILED_MS = 6 * 24 * 3_600_000;

/**
 * Which of the jobs need what they have saved no more. Nothing can go on from the checkpoints of a
 * job that has ended; those of a failed one may still tell what has happened. Of a job that these
 * masters do not know the worker can tell whether it was this cluster's. Undefined where all need
 * theirs.
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
