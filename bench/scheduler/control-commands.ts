import { submitJobRequest } from "@heddle/contracts/api/job-spec";
import type { ControlCommand } from "@heddle/control/command";
import type { NodeSnapshot, QueuedJob } from "@heddle/scheduler/model";

/** The log entry by which a synthetic node joins. */
export function joinOf(node: NodeSnapshot): ControlCommand {
  const { id, gpuType, gpuMemoryGb, devices, capacity, rack, fabric } = node;
  const offer = {
    id,
    name: id,
    address: `${id}:1`,
    incarnation: "1",
    gpuType,
    gpuMemoryGb,
    rack,
    fabric,
    ...capacity,
    gpuCount: devices.length,
    simulated: true,
    labels: {},
    taints: [],
    executors: ["process"],
  };
  return { type: "node.join", atMs: Date.now(), offer };
}

/** The log entry by which the n-th synthetic job is submitted. */
export function submitOf(at: number, { project, request }: QueuedJob): ControlCommand {
  const { gpus, gpuMilli, scalars } = request;
  const spec = submitJobRequest.parse({
    name: `job-${at}`,
    project,
    command: "true",
    tasks: 1,
    resources: {
      gpu_count: gpus === 0 ? 0 : (gpus * gpuMilli) / 1_000,
      cpu_cores: scalars.cpuMilli / 1_000,
      memory_gb: (scalars.memoryMib * 2 ** 20) / 1e9,
    },
  });
  const jobId = `job_${String(at).padStart(26, "0")}`;
  return { type: "job.submit", atMs: Date.now(), jobId, spec };
}
