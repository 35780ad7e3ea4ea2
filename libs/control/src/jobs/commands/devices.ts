import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import { messagesAt } from "../../state-messages.ts";
import type { QuarantineDeviceCommand } from "../records/commands.ts";
import type { DeviceReading, NodeRecord } from "../records/records.ts";
import { healthyReading } from "../records/renamed-fields.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

/** An unhealthy device keeps its index and takes no new work; the node's other devices continue. */
export function quarantineDevice(
  change: JobsTransaction,
  command: Omit<QuarantineDeviceCommand, "type" | "atMs">,
): ControlReply {
  const { nodeId, device, why, asOf } = command;
  const node = change.state.nodes.get(nodeId);
  if (!node) return refuse("not_found", `no node has the id ${nodeId}`);
  if (!(Number.isInteger(device) && device >= 0 && device < node.offer.gpuCount)) {
    return refuse("invalid_value", `the node ${nodeId} has no device ${device}`);
  }
  if (why !== undefined && asOf && isStaleReading(node, asOf)) return ACCEPTED;
  const others = node.quarantined.filter((entry) => entry.device !== device);
  const known = others.length < node.quarantined.length;
  if (known === (why !== undefined)) return ACCEPTED;
  const { atMs, index: changedIndex } = change.now;
  const quarantined = why === undefined ? others : [...others, { device, why, atMs }];
  const healthy = messagesAt(change.version).deviceHealthy(device);
  const what = why === undefined ? healthy : `device ${device}: ${why}`;
  change.putNode({ ...node, quarantined, changedIndex }, what);
  return ACCEPTED;
}

/**
 * Whether a later reading of the same worker has already returned devices of the node to service.
 * Reports can reach the log out of order, because each master receives them separately.
 */
export function isStaleReading(
  node: Pick<NodeRecord, "healthyAsOf" | "wellAsOf">,
  { incarnation, reading }: DeviceReading,
): boolean {
  const healthy = healthyReading(node);
  return healthy?.incarnation === incarnation && reading < healthy.reading;
}
