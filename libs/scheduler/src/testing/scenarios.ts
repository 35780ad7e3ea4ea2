import type { SchedulingInput } from "../cycle/scheduling-cycle.ts";
import {
  type ClusterSnapshot,
  DEFAULT_SETTINGS,
  type NodeSnapshot,
  type ProjectState,
  type QueuedJob,
  type RunningJob,
  type TaskRequest,
} from "../model.ts";
import { jobEntry } from "../plan-entry.ts";

/** Small clusters and jobs for tests: every field has a plain value that a test may override. */

export const HOUR_MS = 3_600_000;

export function node(id: string, change: Partial<NodeSnapshot> & { gpus?: number } = {}) {
  const { gpus = 8, ...rest } = change;
  return {
    id,
    state: "ready",
    gpuType: "H100",
    gpuMemoryGb: 80,
    devices: Array.from({ length: gpus }, () => ({ healthy: true })),
    capacity: {
      cpuMilli: 96_000,
      memoryMib: 786_432,
      localSsdGb: 1_000,
      ioOperationsPerSec: 100_000,
      networkMbps: 100_000,
      tasks: 10_000,
    },
    labels: {},
    taints: [],
    rack: "r1",
    fabric: "",
    ...rest,
  } satisfies NodeSnapshot as NodeSnapshot;
}

export function request(
  change: Partial<TaskRequest> & { cpuMilli?: number; memoryMib?: number } = {},
): TaskRequest {
  const { cpuMilli = 1_000, memoryMib = 1_024, ...rest } = change;
  return {
    gpus: 1,
    gpuMilli: 1000,
    gpuTypes: [],
    gpuMemoryGb: 0,
    scalars: {
      cpuMilli,
      memoryMib,
      localSsdGb: 0,
      ioOperationsPerSec: 0,
      networkMbps: 0,
      tasks: 1,
    },
    nodeAffinity: [],
    nodeAntiAffinity: [],
    infiniband: false,
    tolerations: [],
    ...rest,
  };
}

export function queued(jobId: string, change: Partial<QueuedJob> = {}): QueuedJob {
  return {
    entry: jobEntry(jobId),
    project: "p1",
    queue: "default",
    kind: "training",
    qosLevel: "standard",
    priority: 0,
    preemptible: true,
    tasks: 1,
    request: request(),
    submittedAtMs: 0,
    maxRuntimeMs: HOUR_MS,
    waitingFor: [],
    notBeforeMs: 0,
    sameRack: false,
    ...change,
  };
}

export function running(
  id: string,
  placements: RunningJob["placements"],
  change: Partial<RunningJob> = {},
): RunningJob {
  return {
    id,
    project: "p1",
    queue: "default",
    kind: "training",
    qosLevel: "standard",
    priority: 0,
    preemptible: true,
    tasks: placements.length,
    request: request({ gpus: placements[0]?.devices.length ?? 0 }),
    placements,
    startedAtMs: 0,
    checkpointedAtMs: 0,
    maxRuntimeMs: HOUR_MS,
    ...change,
  };
}

export function project(name: string, change: Partial<ProjectState> = {}): ProjectState {
  return {
    project: name,
    weight: 1,
    quota: {},
    usedGpuHours: 0,
    usage: { gpuMilliMs: 0, cpuMilliMs: 0, memoryMibMs: 0, asOfMs: 0 },
    ...change,
  };
}

export function input(
  snapshot: Partial<ClusterSnapshot>,
  queue: readonly QueuedJob[],
  change: { nowMs?: number; settings?: Partial<SchedulingInput["settings"]> } = {},
): SchedulingInput {
  return {
    snapshot: { index: 7, nodes: [], running: [], projects: [], ...snapshot },
    queue,
    nowMs: change.nowMs ?? 0,
    settings: { ...DEFAULT_SETTINGS, ...change.settings },
  };
}
