import type { JobBlocker, JobExplanation } from "@heddle/contracts/api/job-replies";
import type { SpecChange } from "@heddle/control/jobs/commands/spec-changes";
import type { NodeFilter } from "@heddle/scheduler/cluster/eligibility";
import type { Explanation } from "@heddle/scheduler/explain/explain";
import type { Blocker } from "@heddle/scheduler/model";

/** Why a job waits, and what of its spec would have it start now. */
export interface WaitingExplanation extends Explanation {
  /** The smallest first; empty where the spec is not what holds it back. */
  readonly changes: readonly SpecChange[];
}

/** Why a job waits, as the API shows it; times are ISO 8601. */
export function viewExplanation(explanation: WaitingExplanation): JobExplanation {
  const { blockers, nodes, start, changes } = explanation;
  return {
    blockers: blockers.map(viewBlocker),
    nodes: {
      total: nodes,
      rejected: explanation.rejectedByFilter,
      rejected_by_capacity: explanation.rejectedByCapacity,
    },
    tasks_that_fit: explanation.tasksThatFit,
    start_estimate: {
      earliest: isoOrNull(start.earliestMs),
      likely: isoOrNull(start.likelyMs),
      latest: isoOrNull(start.latestMs),
    },
    changes,
  };
}

/** The resource under its name in the spec, its amounts in that field's units. */
export function viewBlocker(blocker: Blocker): JobBlocker {
  const { resource, requested, free, limit } = blocker;
  const { field } = unitOf(resource);
  return {
    ...blocker,
    resource: field,
    requested: specAmount(resource, requested),
    free: specAmount(resource, free),
    limit: specAmount(resource, limit),
    message: blockerText(blocker),
  };
}

/** Why a static filter rejects a node. */
const REJECTIONS: Readonly<Record<NodeFilter, string>> = {
  lost: "are lost: their workers send no heartbeats",
  state: "are not schedulable: they are draining or drained",
  taint: "have taints that the job does not tolerate",
  executor: "do not offer its executor",
  algorithm: "do not offer its algorithm",
  profile: "do not offer its `container_options.profile`",
  feature: "have a worker of an older build, which knows no `inputs` and no `when`",
  plugin: "are excluded by a plugin's filter",
  gpu: "have no GPUs",
  gpu_index: "have no GPU with the index of the requested device",
  gpu_type: "have GPUs of other types than `gpu_type`",
  gpu_memory: "have GPUs with less memory than `gpu_memory_gb`",
  affinity: "do not match `node_affinity`",
  anti_affinity: "match `node_anti_affinity`",
  infiniband: "are not connected to an InfiniBand fabric",
};

/** Enough of it is free, but not in one domain of the topology. */
const FRAGMENTED: Readonly<Record<string, string>> = {
  gpu_milli_in_one_rack: "not within one rack",
  gpu_milli_on_one_fabric: "not within one fabric",
};

/** Why nodes are unavailable that satisfy the spec. */
const UNAVAILABLE: ReadonlyMap<Blocker["reason"], string> = new Map([
  ["NodesLost", "are lost"],
  ["NodesDraining", "are draining or drained"],
]);

/** Workers that cannot isolate tasks serve models only. */
const NO_NODES =
  "no worker takes jobs: none has joined, or those that have do not isolate tasks (ISOLATION in `heddle workers list -o wide`)";

/** A blocker as text: `InsufficientGpu: 8 GPUs requested, 2 free of 4`. */
export function blockerText(blocker: Blocker): string {
  const { reason, resource, requested, free, limit, rejected, wanted, offered } = blocker;
  if (reason === "NoNodes") return `${reason}: ${NO_NODES}`;
  if (reason === "DependencyWait") return `${reason}: ${dependenciesText(blocker)}`;
  if (offered && resource !== "feature") {
    const list = offered.length > 0 ? offered.join(", ") : "none";
    return `${reason}: no node that may run the job offers the ${resource} ${wanted}; the nodes offer: ${list}`;
  }
  const fragments = /^parameter_server_shards_of_(\d+)_fragments$/.exec(resource)?.[1];
  if (fragments) {
    return `${reason}: ${requested} shards of ${fragments} fragments requested; the parameter servers have room for ${free} of ${limit}, since all fragments of a shard are on one server`;
  }
  const rejection = REJECTIONS[resource as NodeFilter];
  if (rejected !== undefined && rejection)
    return `${reason}: ${rejected} of ${limit} nodes ${rejection}`;
  const where = FRAGMENTED[resource] ?? (reason === "Fragmented" ? "not together" : undefined);
  if (where) {
    return `${reason}: ${amount(resource, requested)} requested; ${specAmount(resource, free)} of ${specAmount(resource, limit)} are free, but ${where} as the tasks or the gang require`;
  }
  if (resource === "tasks_to_fence") {
    return `${reason}: ${requested} of ${limit} tasks may still run on lost nodes; the job continues when their workers report, or when their leases have expired`;
  }
  if (resource === "tasks_leaving") {
    return `${reason}: ${requested} of ${limit} tasks are still stopping`;
  }
  if (UNAVAILABLE.has(reason) && resource === "nodes") {
    return `${reason}: ${limit - free} of ${limit} nodes that the job could run on ${UNAVAILABLE.get(reason)}`;
  }
  if (reason === "Backoff") {
    return `${reason}: ${requested / 1_000} s of backoff left before the next start, until ${isoOrNull(limit)}`;
  }
  return `${reason}: ${amount(resource, requested)} requested, ${specAmount(resource, free)} free of ${specAmount(resource, limit)}`;
}

function dependenciesText({ jobs = [], requested }: Blocker): string {
  const rest = requested - jobs.length;
  const more = rest > 0 ? ` and ${rest} more` : "";
  return `waits for ${jobs.join(", ")}${more} to succeed`;
}

/** An amount as the spec has it: GPUs, where the scheduler counts thousandths of one. */
function amount(resource: string, value: number): string {
  if (inGpus(resource)) return `${value / 1_000} GPU${value === 1_000 ? "" : "s"}`;
  const { field, unit } = unitOf(resource);
  const shown = specAmount(resource, value);
  return unit ? `${shown} ${unit} (\`${field}\`)` : `${field} ${shown}`;
}

/** A number of the scheduler in the units of the spec's field. */
function specAmount(resource: string, value: number): number {
  const { times, isRoundedUp } = unitOf(resource);
  return isRoundedUp ? shortest(value, times) : rounded(value * times);
}

/** The shortest number, down to thousandths, that the scheduler rounds up to `value` of its own units. */
function shortest(value: number, times: number): number {
  const exact = value * times;
  for (const scale of [1, 10, 100]) {
    const shorter = Math.floor(exact * scale) / scale;
    if (Math.ceil(shorter / times) === value) return shorter;
  }
  return Math.floor(exact * 1_000) / 1_000;
}

/** What the scheduler counts in units of its own: the spec's field, and how many of it one is. */
const UNITS: Readonly<Record<string, Unit>> = {
  gpu_milli: { field: "gpu_count", times: 0.001 },
  gpu_milli_in_one_rack: { field: "gpu_count_in_one_rack", times: 0.001 },
  gpu_milli_on_one_fabric: { field: "gpu_count_on_one_fabric", times: 0.001 },
  cpu_milli: { field: "cpu_cores", unit: "CPU cores", times: 0.001 },
  memory_mib: {
    field: "memory_gb",
    unit: "GB of memory",
    times: 1_048_576 / 1e9,
    isRoundedUp: true,
  },
  local_ssd_gb: { field: "local_ssd_gb", unit: "GB of local SSD", times: 1 },
  shared_storage_gb: { field: "shared_storage_gb", unit: "GB of shared storage", times: 1 },
  io_operations_per_sec: {
    field: "io_operations_per_sec",
    unit: "I/O operations per second",
    times: 1,
  },
  network_mbps: {
    field: "network_bandwidth_gbps",
    unit: "Gbit/s of network over all tasks",
    times: 0.001,
  },
  tasks: { field: "tasks", unit: "places for tasks", times: 1 },
};

interface Unit {
  readonly field: string;
  readonly unit?: string;
  readonly times: number;
  /** One of the scheduler's is more than a thousandth of the field's, and what was asked for was rounded up. */
  readonly isRoundedUp?: boolean;
}

function unitOf(resource: string): Unit {
  return UNITS[resource] ?? { field: resource, times: 1 };
}

/** The scheduler rounds up to its own units; beyond thousandths nothing was asked for. */
function rounded(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}

function inGpus(resource: string): boolean {
  return resource.startsWith("gpu_milli");
}

/** A time as ISO 8601 UTC; null where there is none. */
export function isoOrNull(atMs: number | undefined): string | null {
  return atMs === undefined || !Number.isFinite(atMs) ? null : new Date(atMs).toISOString();
}
