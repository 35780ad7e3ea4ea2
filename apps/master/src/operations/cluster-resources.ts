import type { ClusterResourcesReply, ResourceUse } from "@heddle/contracts/cluster";
import type { NodeView } from "../ports.ts";

type NodeResources = ClusterResourcesReply["nodes"][number];
type Amount = NodeResources["cpu_cores"];
type GpuPool = NodeResources["gpus"][number];

/** What others than replicas hold of a node, such as the tasks of jobs. */
export type TaskUses = (nodeId: string) => readonly ResourceUse[];

/** What the nodes offer and what is in use, for each and in all. */
export function clusterResources(
  nodes: readonly NodeView[],
  tasksOn: TaskUses,
): ClusterResourcesReply {
  const views = nodes.map((node) => nodeResources(node, tasksOn(node.id)));
  return {
    object: "cluster.resources",
    timestamp: new Date().toISOString(),
    totals: {
      nodes: views.length,
      cpu_cores: sum(views.map((view) => view.cpu_cores)),
      memory_bytes: sum(views.map((view) => view.memory_bytes)),
      local_ssd_bytes: sum(views.map((view) => view.local_ssd_bytes)),
      gpus: mergePools(views.flatMap(({ gpus }) => gpus)),
    },
    nodes: views,
  };
}

function nodeResources(node: NodeView, tasks: readonly ResourceUse[]): NodeResources {
  const uses = [...node.replicas.flatMap(replicaUse), ...tasks];
  const given = (field: "cpu_cores" | "memory_bytes" | "local_ssd_bytes") =>
    uses.reduce((total, use) => total + use[field], 0);
  const busyCores = (node.cpuPercent / 100) * node.cpuCount;
  return {
    id: node.id,
    name: node.name,
    kind: node.kind,
    state: node.state,
    cpu_cores: amount(node.cpuCount, given("cpu_cores"), busyCores),
    memory_bytes: amount(node.memoryBytes, given("memory_bytes"), node.memoryUsedBytes),
    local_ssd_bytes: amount(node.diskBytes, given("local_ssd_bytes"), node.diskUsedBytes),
    gpus: gpuPools(node, uses),
    uses,
  };
}

/** Engines share the cores: a replica is given none of its own, but memory, and a GPU where it is on one. */
function replicaUse({
  deployment,
  phase,
  load,
  info,
}: NodeView["replicas"][number]): ResourceUse[] {
  if (phase === "failed") return [];
  const gpu = gpuIndex(info?.device);
  return [
    {
      kind: "replica",
      id: deployment,
      cpu_cores: 0,
      memory_bytes: load.residentBytes,
      local_ssd_bytes: 0,
      gpus: gpu === undefined ? [] : [{ index: gpu, share: 1 }],
    },
  ];
}

/** Engines name the device that they run on as `cpu` or `gpu 0: NAME`. */
function gpuIndex(device: string | undefined): number | undefined {
  const [, index] = /^gpu (\d+)\b/.exec(device ?? "") ?? [];
  return index === undefined ? undefined : Number(index);
}

function gpuPools({ gpus }: NodeView, uses: readonly ResourceUse[]): GpuPool[] {
  const shares = new Map<number, number>();
  for (const { index, share } of uses.flatMap((use) => use.gpus)) {
    shares.set(index, Math.min(1, (shares.get(index) ?? 0) + share));
  }
  return mergePools(
    gpus.map(({ index, name, memoryBytes }) => {
      return {
        type: name,
        count: 1,
        in_use: shares.get(index) ?? 0,
        memory_bytes_each: memoryBytes,
      };
    }),
  );
}

/** GPUs of one type and memory are one pool. */
function mergePools(pools: readonly GpuPool[]): GpuPool[] {
  const merged = new Map<string, GpuPool>();
  for (const pool of pools) {
    const key = `${pool.type}\n${pool.memory_bytes_each}`;
    const known = merged.get(key);
    const count = (known?.count ?? 0) + pool.count;
    merged.set(key, { ...pool, count, in_use: (known?.in_use ?? 0) + pool.in_use });
  }
  return [...merged.values()].sort((a, b) => a.type.localeCompare(b.type));
}

function amount(offered: number, inUse: number, measured: number): Amount {
  return { offered, in_use: inUse, measured: Math.round(measured * 1000) / 1000 };
}

function sum(amounts: readonly Amount[]): Amount {
  const of = (field: keyof Amount) => amounts.reduce((total, each) => total + each[field], 0);
  return amount(of("offered"), of("in_use"), of("measured"));
}
