import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import type { GpuView, NodeView } from "./node-directory.ts";

/** Sums over the GPUs of nodes. */
export interface GpuSums {
  readonly count: number;
  readonly simulated: number;
  readonly memoryBytes: number;
  readonly memoryUsedBytes: number;
  readonly utilizationPercent: number;
}

/** Counts each GPU once, by the last report; simulated ones belong to one worker each. */
export function* sumDistinctGpus(nodes: readonly NodeView[]): Steps<GpuSums> {
  const found = new Map<string, GpuView>();
  yield* forEachInSteps(nodes, (node) => {
    for (const gpu of node.gpus) found.set(deviceOf(node, gpu), gpu);
  });
  const sums = { simulated: 0, memoryBytes: 0, memoryUsedBytes: 0, utilizationPercent: 0 };
  yield* forEachInSteps(found.values(), (gpu) => {
    if (gpu.simulated) sums.simulated++;
    sums.memoryBytes += gpu.memoryBytes;
    sums.memoryUsedBytes += gpu.memoryUsedBytes;
    sums.utilizationPercent += gpu.utilizationPercent;
  });
  return { count: found.size, ...sums };
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
