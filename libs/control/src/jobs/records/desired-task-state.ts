import type { JobRecord, TaskRecord } from "./records.ts";

/**
 * What the state wants of a task on its worker: hold its place (`lease`), run (`start`, with the
 * peers' addresses from the task records), leave, or be forgotten because its end is in the log.
 */
export type WantedTask =
  | { readonly order: "lease" | "start" | "forget" }
  | {
      readonly order: "stop";
      /** Ask for a checkpoint first. */
      readonly checkpoint: boolean;
      /** When it is to be killed, ms since the epoch; absent: at once. */
      readonly byMs?: number | undefined;
      readonly why: string;
    };

/** A task that the state does not hold at all is wanted as `stop`, then `forget`. */
export function desiredTaskState(job: JobRecord | undefined, task: TaskRecord): WantedTask {
  if (task.phase === "exited") return { order: "forget" };
  if (!job || task.attempt !== job.attempt) return stopNow("the attempt is over");
  switch (job.state) {
    case "scheduled":
      return { order: "lease" };
    case "starting":
    case "running":
      return { order: "start" };
    case "recovering":
      // A replacement joins the tasks that run as soon as it has its lease.
      return { order: task.phase === "reserved" ? "lease" : "start" };
    case "checkpointing": {
      const why = job.leaving?.why ?? "preempt";
      return { order: "stop", checkpoint: true, byMs: job.dueMs, why };
    }
    default:
      return stopNow(`the job is ${job.state}`);
  }
}

function stopNow(why: string): WantedTask {
  return { order: "stop", checkpoint: false, why };
}
