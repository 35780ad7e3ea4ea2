import type { JobRecord, TaskRecord } from "./records.ts";

/**
 * The desired state of a task on its worker: hold its place (`lease`), run, stop, or be forgotten
 * as its exit is logged. A `start` has the peers' addresses from the task records.
 */
export type DesiredTask =
  | { readonly order: "lease" | "start" | "forget" }
  | {
      readonly order: "stop";
      /** Ask for a checkpoint first. */
      readonly checkpoint: boolean;
      /** When it is killed, ms since the epoch; absent: at once. */
      readonly byMs?: number | undefined;
      readonly why: string;
    };

/** A task without a record is stopped, then forgotten. */
export function desiredTaskState(job: JobRecord | undefined, task: TaskRecord): DesiredTask {
  if (task.phase === "exited") return { order: "forget" };
  if (!job || task.attempt !== job.attempt) return stopNow("the attempt has ended");
  switch (job.state) {
    case "scheduled":
      return { order: "lease" };
    case "starting":
    case "running":
      return { order: "start" };
    case "recovering":
      // A replacement joins the running tasks as soon as it has its lease.
      return { order: task.phase === "reserved" ? "lease" : "start" };
    case "checkpointing": {
      const why = job.leaving?.why ?? "preempt";
      return { order: "stop", checkpoint: true, byMs: job.dueMs, why };
    }
    default:
      return stopNow(`the job is ${job.state}`);
  }
}

function stopNow(why: string): DesiredTask {
  return { order: "stop", checkpoint: false, why };
}
