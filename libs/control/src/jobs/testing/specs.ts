import { type SubmitJob, submitJobRequest } from "@heddle/contracts/api/job-spec";
import type { EngineOptions } from "@heddle/contracts/engine";
import type { ControlCommand } from "../../command.ts";
import type { DeploymentRecord } from "../../state.ts";
import type { NodeOffer, ReplicaResources } from "../records/records.ts";

/** A job's spec as the API parses it; by default a shell command on one GPU. */
export function jobSpec(change: Record<string, unknown> = {}): SubmitJob {
  return submitJobRequest.parse({
    name: "job",
    command: "true",
    resources: { gpu_count: 1 },
    ...change,
  });
}

/** The id of the n-th job of a test. */
export function jobId(n: number): string {
  return `job_${String(n).padStart(26, "0")}`;
}

/** A node with four GPUs that runs processes. */
export function nodeOffer(id: string, change: Partial<NodeOffer> = {}): NodeOffer {
  return {
    id,
    name: id,
    address: `${id}:1`,
    incarnation: "1",
    cpuMilli: 64_000,
    memoryMib: 65_536,
    localSsdGb: 1_000,
    ioOperationsPerSec: 0,
    networkMbps: 0,
    gpuType: "H100",
    gpuMemoryGb: 80,
    gpuCount: 4,
    simulated: true,
    labels: {},
    taints: [],
    rack: "",
    fabric: "",
    executors: ["process"],
    algorithms: [],
    ...change,
  };
}

/** A registered model whose replicas need one GPU each, placed by the scheduler. */
export function scheduledModel(
  id: string,
  replicas: number,
  atMs: number,
  more: Partial<ReplicaResources> = {},
): ControlCommand {
  const resources = { gpuCount: 1, gpuTypes: [], gpuMemoryGb: 0, ...more };
  return modelCommand(id, atMs, {}, { replicas, resources });
}

/** A registered model whose options name the device of each replica. */
export function modelOnDevice(
  id: string,
  device: string,
  replicas: number | "every-worker",
  atMs: number,
): ControlCommand {
  return modelCommand(id, atMs, { device }, { replicas });
}

function modelCommand(
  id: string,
  atMs: number,
  options: EngineOptions,
  deployment: Omit<DeploymentRecord, "spec">,
): ControlCommand {
  const weights = { key: id, file: `${id}.gguf`, sources: [`builtin://${id}`] };
  return {
    type: "model.register",
    atMs,
    model: {
      id,
      family: "f",
      contextWindow: 1,
      availability: "",
      intendedUse: "",
      ownedBy: "o",
      capabilities: [],
      createdAtMs: 0,
      deployment: id,
      backing: "b",
      standIn: false,
    },
    deployment: { spec: { key: id, engine: "llama", weights, options }, ...deployment },
  };
}
