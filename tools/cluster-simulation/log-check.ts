import type { JobRecord } from "@heddle/control/jobs/records/records";
import type { Checker } from "./checker.ts";
import type { SimulatedMaster } from "./master.ts";

/**
 * Reads of a job's log, a second apart, until lines in transit at the job's end must be in it. A
 * request for a connection that a cut link has lost is repeated after up to 8 s.
 */
const READS = 20;
const READ_EVERY_MS = 1_000;

/**
 * Compares the logs of the jobs, as this master gives them, with what their tasks have written. The end
 * of a log may be missing where its machine was lost.
 */
export async function checkLogs(
  checker: Checker,
  master: SimulatedMaster,
  jobIds: Iterable<string>,
  lost: ReadonlySet<string>,
): Promise<void> {
  for (const id of jobIds) {
    const job = master.plane?.state.jobs.get(id);
    if (job) await checkJob(checker, master, job, lost);
  }
}

async function checkJob(
  checker: Checker,
  master: SimulatedMaster,
  job: JobRecord,
  lost: ReadonlySet<string>,
): Promise<void> {
  const { id, attempt } = job;
  const succeeded =
    job.state === "succeeded"
      ? [...checker.tasks.values()].filter(
          ({ id: task, machine }) =>
            task.jobId === id && task.attempt === attempt && !lost.has(machine),
        )
      : [];
  for (let read = 1; ; read++) {
    const logs = await master.logsOf(id);
    for (const [key, text] of logs) checker.checkLog(key, text, false);
    const isMissing = succeeded.some(({ key, output }) => {
      return (logs.get(key) ?? "").length < output.join("").length;
    });
    if (isMissing && read < READS) {
      await new Promise((resolve) => setTimeout(resolve, READ_EVERY_MS));
      continue;
    }
    for (const { key } of succeeded) checker.checkLog(key, logs.get(key) ?? "", true);
    return;
  }
}
