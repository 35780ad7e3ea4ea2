import { ACCEPTED, type ControlReply } from "../../command.ts";
import type { FenceNodesCommand } from "../records/commands.ts";
import type { NodeRecord, TaskRecord } from "../records/records.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";
import { putTasks } from "./task-reports.ts";

/** Fences the nodes that have not returned, nor been lost again, since. */
export function fenceNodes(change: JobsTransaction, command: FenceNodesCommand): ControlReply {
  const lost: NodeRecord[] = [];
  for (const { nodeId, lostIndex } of command.losses) {
    const node = change.state.nodes.get(nodeId);
    if (node && node.lostIndex === lostIndex) lost.push(node);
  }
  fence(change, lost);
  return ACCEPTED;
}

/** The leases there have expired, so the tasks have ended whatever their processes do. */
export function fence(change: JobsTransaction, nodes: readonly NodeRecord[]): void {
  const { atMs: endedAtMs } = change.now;
  const over: TaskRecord[] = [];
  for (const node of nodes) {
    for (const key of change.index.tasksByNode.get(node.offer.id) ?? []) {
      const task = change.state.tasks.get(key)!;
      // A task that reported since its node returned continues.
      if (task.phase !== "lost") continue;
      const exit = { reason: "NodeLost" as const, message: "its node is lost", endedAtMs };
      over.push({ ...task, phase: "exited", exit });
    }
    change.putNode({ ...node, fencedAtMs: undefined, lostIndex: undefined });
  }
  putTasks(change, over);
}

/** Whether a loss ends by the log's time, as those from before FENCES_BY_LEADER. */
export function isFencedByTime(node: NodeRecord): node is NodeRecord & { fencedAtMs: number } {
  return node.fencedAtMs !== undefined && node.lostIndex === undefined;
}
