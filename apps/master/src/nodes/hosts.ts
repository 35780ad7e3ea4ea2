import type { GpuView, NodeView } from "./node-directory.ts";

/** The GPUs of the nodes, each once; simulated ones are each worker's own. */
export function distinctGpus(nodes: readonly NodeView[]): GpuView[] {
  const found = new Map<string, GpuView>();
  for (const node of nodes) {
    for (const gpu of node.gpus) found.set(deviceOf(node, gpu), gpu);
  }
  return [...found.values()];
}

/** A name that a device has on every node that tells of it. */
export function deviceOf(node: NodeView, gpu: GpuView): string {
  if (gpu.simulated || gpu.uuid === "") return `${node.id}/${gpu.index}`;
  return `${hostOf(node)}/${gpu.uuid}`;
}

/** The name of a node's disk: nodes of one machine may share one. */
export function diskOf(node: NodeView): string {
  return node.diskId ? `${hostOf(node)}/${node.diskId}` : `node ${node.id}`;
}

/**
 * The name of the machine that a node runs on: what it has is there once, however many nodes tell of
 * it. A node that does not say where it runs has a machine of its own.
 */
export function hostOf({ hostId, id }: Pick<NodeView, "hostId" | "id">): string {
  return hostId ? `host ${hostId}` : `node ${id}`;
}
