import type { ConfirmFailuresCommand } from "@heddle/control/jobs/records/commands";
import { type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";
import { othersOf, rootCause } from "@heddle/control/jobs/records/root-cause";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

/**
 * A report confirms a failure only after this time, within which a common cause shows on both
 * nodes.
 */
const SETTLE_MS = 1_000;

/**
 * The failures that are confirmed: every other task's node has reported since. `reportedMs` is the
 * time of a node's latest report, ms since the epoch; undefined if its state is unknown.
 */
export function confirmedFailures(
  { state, jobs }: Pick<ControlPlane, "state" | "jobs">,
  reportedMs: (nodeId: string) => number | undefined,
): ConfirmFailuresCommand["entries"] {
  const entries: ConfirmFailuresCommand["entries"][number][] = [];
  for (const jobId of jobs.suspected) {
    const { attempt, tasks: count, suspectedMs = 0 } = state.jobs.get(jobId)!;
    const tasks: TaskRecord[] = [];
    for (let rank = 0; rank < count; rank++) {
      const task = state.tasks.get(taskKey(jobId, attempt, rank));
      if (task) tasks.push(task);
    }
    const failed = rootCause(tasks);
    const nodes = new Set(failed ? othersOf(tasks, failed).map(({ nodeId }) => nodeId) : []);
    const isLive = (nodeId: string) => (reportedMs(nodeId) ?? 0) >= suspectedMs + SETTLE_MS;
    if ([...nodes].every(isLive)) entries.push({ jobId, attempt, suspectedMs });
  }
  return entries;
}
