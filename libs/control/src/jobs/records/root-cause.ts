import type { FailureReason } from "@heddle/contracts/api/job-spec";
import { messagesAt } from "../../state-messages.ts";
import type { JobFailureRecord, JobRecord, TaskRecord } from "./records.ts";

/**
 * How the loss of another task's node appears to a task: broken connections or missing messages.
 */
const CONSEQUENCES: ReadonlySet<FailureReason> = new Set(["ExitCode", "Hang"]);

/**
 * The task that caused an attempt's failure; undefined if all failures are node losses. One that
 * failed for a reason of its own comes first, then one lost with its node or device, then the first
 * to exit.
 */
export function rootCause(tasks: readonly TaskRecord[]): TaskRecord | undefined {
  if (!tasks.some((task) => task.exit?.reason !== undefined && !isLost(task))) return undefined;
  const candidates = tasks.filter((task) => isLost(task) || task.exit?.reason !== undefined);
  return candidates.sort((a, b) => depth(a) - depth(b) || endedAtMs(a) - endedAtMs(b)).at(0);
}

function depth(task: TaskRecord): number {
  if (isLost(task) || task.exit?.reason === "GpuFault") return 1;
  return CONSEQUENCES.has(task.exit?.reason ?? "Internal") ? 2 : 0;
}

function endedAtMs({ exit }: TaskRecord): number {
  return exit?.endedAtMs ?? 0;
}

/**
 * Whether the failure is unconfirmed: tasks on other nodes are alive by the log, and only a later
 * report from those nodes proves it. `statusTimeoutMs` bounds the wait; undefined: no wait.
 */
export function isUnconfirmed(
  job: JobRecord,
  tasks: readonly TaskRecord[],
  failed: TaskRecord,
  statusTimeoutMs: number | undefined,
): boolean {
  if (statusTimeoutMs === undefined && job.suspectedMs === undefined) return false;
  if (job.state === "scheduled" || job.state === "checkpointing" || depth(failed) < 2) return false;
  return othersOf(tasks, failed).length > 0;
}

/** The tasks on other nodes than the failed one that are alive by the log. */
export function othersOf(tasks: readonly TaskRecord[], failed: TaskRecord): TaskRecord[] {
  return tasks.filter(({ phase, nodeId }) => phase !== "exited" && nodeId !== failed.nodeId);
}

/** The failure as clients see it while it is unconfirmed. */
export function unconfirmedFailure(failed: TaskRecord, version: number): JobFailureRecord {
  const failure = failureOf(failed);
  const rest = messagesAt(version).unconfirmedFailure;
  return { ...failure, message: failure.message === "" ? rest : `${failure.message}; ${rest}` };
}

export function isLost({ phase, exit }: TaskRecord): boolean {
  return phase === "lost" || exit?.reason === "NodeLost";
}

export function lossOf({ rank, nodeId, exit }: TaskRecord): JobFailureRecord {
  const message = exit?.message || `the node of rank ${rank} is lost`;
  return { reason: "NodeLost", message, rank, nodeId };
}

export function failureOf(task: TaskRecord): JobFailureRecord {
  if (isLost(task)) return lossOf(task);
  const { rank, nodeId, exit } = task;
  const { reason = "Internal", message = "", exitCode, signal, lastLines } = exit!;
  return { reason, message, exitCode, signal, rank, nodeId, lastLines };
}
