import type { ControlState } from "@heddle/control/state";

/**
 * Whether the worker is being drained, or is: no call goes to a drained one, and to a draining one
 * only while no other has the deployment ready.
 */
export function leaving(
  { nodes }: Pick<ControlState, "nodes">,
  nodeId: string,
): "draining" | "drained" | undefined {
  const state = nodes.get(nodeId)?.state;
  return state === "draining" || state === "drained" ? state : undefined;
}
