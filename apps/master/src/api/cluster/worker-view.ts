import type { NodeJobs, Worker } from "@heddle/contracts/api/workers";
import type { NodeRecord } from "@heddle/control/jobs/records/records";
import { servingPlaces } from "@heddle/control/jobs/scheduling/replica-claims";
import { MAX_SHARDS_PER_SERVER, shardsOn } from "@heddle/control/jobs/scheduling/shard-places";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { SeesJob } from "../../http/identity/caller.ts";
import { viewReplica } from "../../models/model-view.ts";
import type { NodeView } from "../../nodes/node-directory.ts";

/** Silence of a node after which it is shown as suspect; heartbeats come every second. */
const SILENT_MS = 5_000;

/** What this master receives of a node: its heartbeats, and the time since the last one. */
interface NodeLiveness {
  readonly node: NodeView | undefined;
  readonly silentMs: number;
}

/**
 * A node as this master and the cluster's state see it; `jobs` is null if it runs none. `sees` limits
 * whose tasks are listed.
 */
export function viewWorker(
  id: string,
  { node, silentMs }: NodeLiveness,
  { state, jobs }: Pick<ControlPlane, "state" | "jobs">,
  sees?: SeesJob,
): Worker {
  const record = state.nodes.get(id);
  const server = state.servers.get(id);
  const { name = id, address = "" } = node ?? record?.offer ?? server ?? {};
  const known = record?.state ?? server?.state ?? node?.state ?? "ready";
  const status = node?.refusesLeader === undefined ? known : "refusing";
  return {
    id,
    object: "worker",
    kind: node?.kind ?? (server ? "parameter-server" : "worker"),
    name,
    address,
    version: node?.version ?? null,
    task_isolation: node?.taskIsolation || null,
    // The cluster declares a node lost later than this master misses it.
    status: status === "ready" && silentMs > SILENT_MS ? "suspect" : status,
    attached: node !== undefined,
    silent_seconds: Math.floor(silentMs / 1_000),
    refuses_leader: node?.refusesLeader ?? null,
    executor_fault: node?.executorFault ?? null,
    ...viewAttached(node),
    jobs: record ? viewRecord(id, record, { state, jobs }, sees) : null,
    shards: server ? { held: shardsOn(jobs, id), places: MAX_SHARDS_PER_SERVER } : null,
  };
}

/** Known only while the node is attached to this master. */
function viewAttached(node: NodeView | undefined) {
  return {
    attached_at: node ? new Date(node.attachedAtMs).toISOString() : null,
    last_seen_at: node ? new Date(node.lastSeenMs).toISOString() : null,
    cpu_percent: node?.cpuPercent ?? null,
    cpu_count: node?.cpuCount ?? null,
    memory_bytes: node?.memoryBytes ?? null,
    memory_used_bytes: node?.memoryUsedBytes ?? null,
    gpus: (node?.gpus ?? []).map((gpu) => ({
      index: gpu.index,
      uuid: gpu.uuid,
      name: gpu.name,
      memory_bytes: gpu.memoryBytes,
      memory_used_bytes: gpu.memoryUsedBytes,
      utilization_percent: gpu.utilizationPercent,
      temperature_celsius: gpu.temperatureCelsius,
      power_watts: gpu.powerWatts,
      simulated: gpu.simulated,
      fault: gpu.fault === "" ? null : gpu.fault,
    })),
    replicas: (node?.replicas ?? []).map((replica) => ({
      deployment: replica.deployment,
      ...viewReplica(node?.id ?? "", replica),
    })),
  };
}

/** The node's offer to jobs, and what they hold of it. */
function viewRecord(
  id: string,
  record: NodeRecord,
  { state, jobs }: Pick<ControlPlane, "state" | "jobs">,
  sees: SeesJob = () => true,
): NodeJobs {
  const { offer, quarantined, drainByMs, lostAtMs } = record;
  const keys = [...(jobs.tasksByNode.get(id) ?? [])];
  const tasks = keys.flatMap((key) => state.tasks.get(key) ?? []);
  const serving = servingPlaces(jobs, record);
  const heldMilli =
    tasks.reduce((sum, task) => sum + task.gpuMilli * task.devices.length, 0) +
    serving.reduce((sum, { devices }) => sum + 1_000 * devices.length, 0);
  return {
    state: record.state,
    index: record.changedIndex,
    drain_by: drainByMs === undefined ? null : new Date(drainByMs).toISOString(),
    lost_at: lostAtMs === undefined ? null : new Date(lostAtMs).toISOString(),
    labels: offer.labels,
    taints: offer.taints,
    rack: offer.rack,
    fabric: offer.fabric,
    executors: offer.executors,
    algorithms: offer.algorithms ?? [],
    gpu_type: offer.gpuType,
    gpu_memory_gb: offer.gpuMemoryGb,
    gpus: offer.gpuCount,
    gpus_held: heldMilli / 1_000,
    simulated: offer.simulated,
    quarantined: quarantined.map(({ device, why, atMs }) => ({
      device,
      why,
      at: new Date(atMs).toISOString(),
    })),
    serving: serving.map(({ deployment, devices }) => ({ deployment, devices })),
    max_tasks: offer.maxTasks ?? null,
    tasks: tasks
      .filter(({ jobId }) => sees(jobId))
      .map(({ jobId, attempt, rank, phase, devices }) => {
        return { job_id: jobId, attempt, rank, phase, devices };
      }),
  };
}
