import type { FailureReason, JobState } from "../job-spec.ts";

/** What each state of a job means, and what follows it. */
export const JOB_STATE_MEANINGS: Readonly<Record<JobState, string>> = {
  accepted: "Then `pending` once it is admitted, or `failed` where it can never fit.",
  pending: "Waits in the queue; then `scheduled` with the next attempt, with places for all tasks.",
  scheduled: "Then `starting` when all workers agreed; not in time, or a node lost: `pending`.",
  starting: "Then `running` when all tasks run.",
  running: "All tasks ended well: `succeeded`; preempted, drained or suspended: `checkpointing`.",
  checkpointing: "All tasks over, or the grace is: `preempted` or `suspended`.",
  preempted: "All tasks over: `pending`.",
  suspended: "Resumed: `pending`, or `accepted` if it was not admitted yet.",
  recovering: "Lost ranks placed again in the same attempt, all running: `running`.",
  retrying: "All tasks over: `pending`, after the backoff of 1 s, doubled, at most 300 s.",
  cancelling: "All tasks over: `cancelled`.",
  succeeded: "All tasks of the attempt ended with exit code 0.",
  failed: "`failure` has the reason.",
  cancelled: "A caller cancelled it.",
};

/** What each reason of a failure means. Of several tasks the first with a reason of its own counts. */
export const FAILURE_MEANINGS: Readonly<Record<FailureReason, string>> = {
  ExitCode: "A task ended with another exit code than 0.",
  OutOfMemory: "A task used more memory than it asked for.",
  GpuOutOfMemory: "The memory of a GPU was not enough.",
  GpuFault: "A GPU failed its checks; uses up no retry.",
  NodeLost: "A node was lost; uses up no retry, but the 100th loss is final.",
  Hang: "No step within `hang_timeout_seconds`.",
  DeadlineExceeded: "The attempt ran longer than it may. Final.",
  ImagePull: "The image of the container could not be pulled.",
  DependencyFailed: "A job that must succeed first did not. Final.",
  CheckpointCorrupt: "The checkpoint to continue from is damaged. Final.",
  RetryLimitExceeded: "`retry_limit` is used up; `cause` is the last reason.",
  Unsatisfiable: "The cluster can never run it. Final.",
  LaunchFailed: "A task could not be started.",
  StorageExceeded: "Its artifacts exceed the storage quota of its project. Final.",
  Internal: "A fault of the platform, or artifacts beyond their limits.",
};
