import type { ResourceUse } from "@heddle/contracts/api/cluster";
import { SCALARS } from "@heddle/scheduler/cluster/units";
import type { NodeScalars } from "@heddle/scheduler/model";
import type { ControlPlane } from "../control-plane/control-plane.ts";

const MEBIBYTE = 2 ** 20;
const GIGABYTE = 1e9;

/** What the tasks of jobs hold of a node, from their reservation until they have certainly ended. */
export function taskUses({ state, jobs }: ControlPlane, nodeId: string): ResourceUse[] {
  return [...(jobs.tasksByNode.get(nodeId) ?? [])].flatMap((key) => {
    const task = state.tasks.get(key);
    const job = task && state.jobs.get(task.jobId);
    if (!task || !job) return [];
    const { scalars } = jobs.requestOf(job);
    return [
      {
        kind: "task" as const,
        id: task.jobId,
        cpu_cores: scalars.cpuMilli / 1_000,
        memory_bytes: scalars.memoryMib * MEBIBYTE,
        local_ssd_bytes: scalars.localSsdGb * GIGABYTE,
        gpus: task.devices.map((index) => ({ index, share: task.gpuMilli / 1_000 })),
      },
    ];
  });
}

/** The same amounts as the scheduler counts, in total. */
export function scalarsHeld({ state, jobs }: ControlPlane, nodeId: string): NodeScalars {
  const held = {
    cpuMilli: 0,
    memoryMib: 0,
    localSsdGb: 0,
    ioOperationsPerSec: 0,
    networkMbps: 0,
    tasks: 0,
  };
  for (const key of jobs.tasksByNode.get(nodeId) ?? []) {
    const job = state.jobs.get(state.tasks.get(key)?.jobId ?? "");
    if (!job) continue;
    const { scalars } = jobs.requestOf(job);
    for (const amount of SCALARS) held[amount] += scalars[amount];
  }
  return held;
}

/** Storage outside all nodes that jobs with places have requested. */
export function sharedStorageUsedGb({ jobs }: ControlPlane): number {
  return jobs.holdings.sharedStorageMb / 1_000;
}
