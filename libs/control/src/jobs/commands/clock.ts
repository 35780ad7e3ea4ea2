import { ACCEPTED, type ControlReply } from "../../command.ts";
import type { JobIndex } from "../index/job-index.ts";
import { accountDueMs } from "../records/account-changes.ts";
import type { TickCommand } from "../records/commands.ts";
import type { JobRecord, JobsState } from "../records/records.ts";
import { fence, isFencedByTime } from "./fencing.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";
import { evictReplicas, replicasDueMs } from "./node-changes.ts";

/** Retention of ended jobs: age and count. */
const KEEP_ENDED_MS = 7 * 24 * 3_600_000;
const MAX_ENDED = 100_000;

/** Fires every timer that is due by the log's time. */
export function applyClockTick(change: JobsTransaction, _command: TickCommand): ControlReply {
  fenceDueNodes(change);
  fireJobs(change);
  evictReplicas(change);
  forgetEnded(change);
  change.settleAccounts();
  return ACCEPTED;
}

/** When the state needs the next `clock.tick`; undefined if no timer is pending. */
export function nextDueMs({ nodes, projects }: JobsState, index: JobIndex): number | undefined {
  let due = Number.POSITIVE_INFINITY;
  for (const dueMs of index.dues.values()) due = Math.min(due, dueMs);
  for (const node of nodes.values()) {
    if (isFencedByTime(node)) due = Math.min(due, node.fencedAtMs);
    due = Math.min(due, replicasDueMs(index, node) ?? Number.POSITIVE_INFINITY);
  }
  for (const { usage } of projects.values()) {
    due = Math.min(due, accountDueMs(usage) ?? Number.POSITIVE_INFINITY);
  }
  const [longest] = index.ended;
  if (longest) due = Math.min(due, longest.endedAtMs! + KEEP_ENDED_MS);
  if (index.ended.length > MAX_ENDED) due = 0;
  return Number.isFinite(due) ? due : undefined;
}

/** Losses from before FENCES_BY_LEADER, which logs of that time fence by their time. */
function fenceDueNodes(change: JobsTransaction): void {
  const nodes = [...change.state.nodes.values()];
  fence(
    change,
    nodes.filter((node) => isFencedByTime(node) && node.fencedAtMs <= change.now.atMs),
  );
}

function fireJobs(change: JobsTransaction): void {
  const { atMs } = change.now;
  const due: JobRecord[] = [];
  for (const [id, dueMs] of change.index.dues) {
    if (dueMs <= atMs) due.push(change.state.jobs.get(id)!);
  }
  // The index's order depends on how it was built, so it may differ between masters.
  due.sort((a, b) => a.submittedIndex - b.submittedIndex);
  for (const job of due) change.move(job, { type: "due" });
}

function forgetEnded(change: JobsTransaction): void {
  const { ended } = change.index;
  const beforeMs = change.now.atMs - KEEP_ENDED_MS;
  while (ended[0] && (ended.length > MAX_ENDED || ended[0].endedAtMs! <= beforeMs)) {
    change.dropJob(ended[0]);
  }
}
