import type { ControlState } from "@heddle/control/state";

/**
 * Whether the worker is draining or drained. A drained one gets calls only for models divided with
 * others; a draining one while no other worker has the deployment ready.
 */
export function leaving(
  { nodes }: Pick<ControlState, "nodes">,
  nodeId: string,
): "draining" | "drained" | undefined {
  const state = nodes.get(nodeId)?.state;
  return state === "draining" || state === "drained" ? state : undefined;
}
