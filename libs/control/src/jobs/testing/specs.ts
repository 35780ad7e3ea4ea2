import { type SubmitJob, submitJobRequest } from "@heddle/contracts/jobs";
import type { NodeOffer } from "../records.ts";

/** A job's spec as the API would parse it: a shell line on one GPU where nothing else is said. */
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
