import { AppError } from "@heddle/base/errors";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import { type JobsState, taskKey } from "@heddle/control/jobs/records/records";
import type { NodeClaim } from "@heddle/pki/node-name";

/** What a node may name in its calls: its own record, and the tasks assigned to it. */
type Owners = Pick<JobsState, "nodes" | "servers" | "tasks">;

/** Throws `permission_denied` if the node id belongs to another name than the caller's. */
export function checkOwnsNode(state: Owners, caller: NodeClaim, nodeId: string): void {
  const known =
    caller.role === "worker"
      ? state.nodes.get(nodeId)?.offer.name
      : state.servers.get(nodeId)?.name;
  const other = caller.role === "worker" ? state.servers : state.nodes;
  if (!other.has(nodeId) && (known === undefined || known === caller.name)) return;
  const owner = known === undefined ? "a node of another kind" : known;
  const message = `the node id ${nodeId} belongs to ${owner}, not to ${caller.name}: start it with its own name and data directory`;
  throw new AppError("permission_denied", message);
}

/** Whether the state assigns exactly this task to the node. */
export function ownsTask(
  state: Pick<Owners, "tasks">,
  nodeId: string,
  { jobId, attempt, rank, incarnation }: TaskId__Output,
): boolean {
  const task = state.tasks.get(taskKey(jobId, attempt, rank));
  return task?.nodeId === nodeId && (task.incarnation ?? 0) === incarnation;
}
