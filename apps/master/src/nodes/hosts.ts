import type { GpuView, NodeView } from "./node-directory.ts";

/** The GPUs of the nodes without duplicates; simulated ones belong to one worker each. */
export function distinctGpus(nodes: readonly NodeView[]): GpuView[] {
  const found = new Map<string, GpuView>();
  for (const node of nodes) {
    for (const gpu of node.gpus) found.set(deviceOf(node, gpu), gpu);
  }
  return [...found.values()];
}

/** An id of a device that is equal on every node that reports it. */
export function deviceOf(node: NodeView, gpu: GpuView): string {
  if (gpu.simulated || gpu.uuid === "") return `${node.id}/${gpu.index}`;
  return `${hostOf(node)}/${gpu.uuid}`;
}

/** The id of a node's disk, which nodes of one machine may share. */
export function diskOf(node: NodeView): string {
  return node.diskId ? `${hostOf(node)}/${node.diskId}` : `node ${node.id}`;
}

/**
 * The id of the machine of a node, whose resources count once for all its nodes. A node that does
 * not report its machine is one of its own.
 */
export function hostOf({ hostId, id }: Pick<NodeView, "hostId" | "id">): string {
  return hostId ? `host ${hostId}` : `node ${id}`;
}
