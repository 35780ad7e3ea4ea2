import { AppError } from "@heddle/base/errors";
import type { LeaseTask__Output } from "@heddle/contracts/generated/heddle/v1/LeaseTask";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskSpec__Output } from "@heddle/contracts/generated/heddle/v1/TaskSpec";

/** A task in its lease; the attempt is the fencing token. */
export interface TaskPlan {
  readonly id: TaskId__Output;
  readonly spec: TaskSpec__Output;
  /** Indexes of this node's devices, and thousandths of each. */
  readonly devices: readonly number[];
  readonly gpuMilli: number;
  /** The id of the cluster whose leader has leased it; absent in records of earlier versions. */
  readonly cluster?: string | undefined;
  /** Sent with its log; absent in leases of earlier versions. */
  readonly logGrant?: string | undefined;
}

/** Throws an AppError `invalid_value` on an incomplete lease. */
export function planOf({ task, spec, ...rest }: LeaseTask__Output, cluster: string): TaskPlan {
  if (!spec) throw new AppError("invalid_value", "the lease of a task has no spec");
  const { devices, gpuMilli, logGrant } = rest;
  return { id: checkedId(task), spec, devices, gpuMilli, cluster, logGrant };
}

/** The id, which becomes part of paths and names. Throws an AppError `invalid_value`. */
export function checkedId(id: TaskId__Output | null | undefined): TaskId__Output {
  if (id && /^[A-Za-z0-9_-]{1,64}$/.test(id.jobId)) {
    const { jobId, attempt, rank, incarnation } = id;
    return { jobId, attempt, rank, incarnation };
  }
  throw new AppError("invalid_value", `${JSON.stringify(id?.jobId)} is not the id of a job`);
}

/** The key of a task in maps, and the mark of its processes. */
export function keyOf({ jobId, attempt, rank, incarnation }: TaskId__Output): string {
  // Records of versions before incarnations have none.
  return `${jobId}/${attempt}/${rank}${incarnation ? `/${incarnation}` : ""}`;
}
