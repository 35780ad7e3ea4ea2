import type { ControlState } from "@heddle/control/state";

/**
 * Whether the worker is draining or drained. A drained one gets no call, but for a model that it
 * divides with others; a draining one only while no other worker has the deployment ready.
 */
export function leaving(
  { nodes }: Pick<ControlState, "nodes">,
  nodeId: string,
): "draining" | "drained" | undefined {
  const state = nodes.get(nodeId)?.state;
  return state === "draining" || state === "drained" ? state : undefined;
}
