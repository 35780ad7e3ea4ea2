import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { SKIPPED } from "@heddle/contracts/api/pipelines/job-inputs";
import type { TaskInput } from "@heddle/contracts/generated/heddle/v1/TaskInput";
import { type JobsState, type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";

/** Where a worker has the inputs of a job's tasks; without a source what is missing. */
export function inputOrders(
  state: Pick<JobsState, "jobs" | "tasks">,
  { inputs = [] }: SubmitJob,
): TaskInput[] {
  return inputs.map(({ name, job, artifact, source = "", sha256 = "" }) => {
    if (job === undefined) return { name, source, sha256, bytes: 0, skipped: false };
    const tasks = lastTasks(state, job);
    for (const { attempt, rank, exit } of tasks) {
      const found = exit?.artifacts?.find((each) => each.name === artifact);
      if (!found) continue;
      const place = `artifact://${job}/${attempt}/${rank}/${found.name}`;
      return { name, source: place, sha256: found.sha256, bytes: found.bytes, skipped: false };
    }
    return { name, source: "", sha256: "", bytes: 0, skipped: tasks.some(isSkipped) };
  });
}

/** Whether its worker has skipped the task, as a condition of its job did not hold. */
export function isSkipped({ exit }: TaskRecord): boolean {
  return exit?.reason === undefined && exit?.message?.startsWith(SKIPPED) === true;
}

/** The tasks of the latest attempt of a job, by rank. */
export function lastTasks(
  { jobs, tasks }: Pick<JobsState, "jobs" | "tasks">,
  jobId: string,
): TaskRecord[] {
  const job = jobs.get(jobId);
  const ranks = Array.from({ length: job?.tasks ?? 0 }, (_, rank) => rank);
  return ranks.flatMap((rank) => tasks.get(taskKey(jobId, job?.attempt ?? 0, rank)) ?? []);
}
