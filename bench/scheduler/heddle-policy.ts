import { Ledger } from "@heddle/scheduler/cluster/ledger";
import { Roster } from "@heddle/scheduler/cluster/roster";
import { ShapeTable } from "@heddle/scheduler/cluster/shape";
import { type NodeSnapshot, type TaskRequest, UNLIMITED_TASKS } from "@heddle/scheduler/model";
import { GangPlacer } from "@heddle/scheduler/placement/gang";
import { Stranding } from "@heddle/scheduler/placement/stranding";
import { countTargets, targetMix } from "@heddle/scheduler/placement/targets";
import type { Policy } from "./policy.ts";
import type { TraceNode, TracePod } from "./trace.ts";

/**
 * Our own `fragmentation` strategy through the library's placement path. Like FGD it knows the
 * trace's mix of pods; unlike FGD it never reads a node's name, so it takes no random order.
 */
export function heddlePolicy(nodes: readonly TraceNode[], pods: readonly TracePod[]): Policy {
  const snapshots = nodes.map(nodeSnapshot);
  const ledger = Ledger.ofCapacity(new Roster(snapshots), 1);
  const mix = targetMix(
    countTargets(pods.map((pod) => ({ request: policyRequest(pod), tasks: 1 }))),
  );
  const placer = new GangPlacer(ledger, new Stranding(mix));
  const shapes = new ShapeTable(new Roster(snapshots));
  const requests = new Map<number, TaskRequest>();
  return {
    place(pod) {
      const request = requests.get(pod.kind) ?? policyRequest(pod);
      requests.set(pod.kind, request);
      const shape = shapes.of(request);
      const gang = { shape, tasks: 1, sameRack: false, strategy: "fragmentation" } as const;
      return placer.place(gang) !== undefined;
    },
  };
}

export function nodeSnapshot({ name, cpuMilli, memoryMib, gpus, model }: TraceNode): NodeSnapshot {
  return {
    id: name,
    state: "ready",
    gpuType: model,
    gpuMemoryGb: 0,
    devices: Array.from({ length: gpus }, () => ({ healthy: true })),
    capacity: {
      cpuMilli,
      memoryMib,
      localSsdGb: 0,
      ioOperationsPerSec: 0,
      networkMbps: 0,
      tasks: UNLIMITED_TASKS,
    },
    labels: {},
    taints: [],
    rack: "",
    fabric: "",
  };
}

export function policyRequest(pod: TracePod): TaskRequest {
  return {
    gpus: pod.gpus,
    gpuMilli: pod.gpuMilli,
    gpuTypes: pod.models,
    gpuMemoryGb: 0,
    scalars: {
      cpuMilli: pod.cpuMilli,
      memoryMib: pod.memoryMib,
      localSsdGb: 0,
      ioOperationsPerSec: 0,
      networkMbps: 0,
      tasks: 1,
    },
    nodeAffinity: [],
    nodeAntiAffinity: [],
    infiniband: false,
    tolerations: [],
  };
}
