import type { TraceNode, TracePod } from "./trace.ts";

/** What is free on a node in a baseline's run. */
export interface NodeState {
  readonly model: string;
  cpuMilli: number;
  memoryMib: number;
  /** Thousandths free, by device. */
  readonly gpuMilli: number[];
}

/** A score (higher is better) and the device that a share goes to; -1 for whole devices. */
export interface Scored {
  readonly score: number;
  readonly device: number;
}

/** How a baseline scores a node that fits. */
export type ScoreFunction = (node: NodeState, pod: TracePod) => Scored;

export function emptyNodes(nodes: readonly TraceNode[]): NodeState[] {
  return nodes.map(({ model, cpuMilli, memoryMib, gpus }) => ({
    model,
    cpuMilli,
    memoryMib,
    gpuMilli: new Array<number>(gpus).fill(1000),
  }));
}

/** CPU and memory are hard limits; each requested device must have the pod's share free. */
export function fits(node: NodeState, pod: TracePod): boolean {
  if (node.cpuMilli < pod.cpuMilli || node.memoryMib < pod.memoryMib) return false;
  if (pod.gpus === 0) return true;
  if (pod.models.length > 0 && !pod.models.includes(node.model)) return false;
  return node.gpuMilli.filter((free) => free >= pod.gpuMilli).length >= pod.gpus;
}

/** Puts the pod on the node: a share on the device named, whole devices from the first idle. */
export function bind(node: NodeState, pod: TracePod, device: number): void {
  node.cpuMilli -= pod.cpuMilli;
  node.memoryMib -= pod.memoryMib;
  if (isShare(pod)) node.gpuMilli[device]! -= pod.gpuMilli;
  else node.gpuMilli.splice(0, node.gpuMilli.length, ...withoutIdle(node.gpuMilli, pod.gpus));
}

/** The devices with the first `gpus` idle ones taken whole. */
export function withoutIdle(gpuMilli: readonly number[], gpus: number): number[] {
  let missing = gpus;
  return gpuMilli.map((free) => (free === 1000 && missing-- > 0 ? 0 : free));
}

export function isShare(pod: TracePod): boolean {
  return pod.gpus === 1 && pod.gpuMilli < 1000;
}

/** The fullest device that still has the share, the first of equals. */
export function tightestDevice(node: NodeState, pod: TracePod): number {
  if (!isShare(pod)) return -1;
  let best = -1;
  node.gpuMilli.forEach((free, device) => {
    if (free >= pod.gpuMilli && (best === -1 || free < node.gpuMilli[best]!)) best = device;
  });
  return best;
}

export function totalGpuMilli(node: NodeState): number {
  let total = 0;
  for (const free of node.gpuMilli) total += free;
  return total;
}
