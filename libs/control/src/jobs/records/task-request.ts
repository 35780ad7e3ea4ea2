import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { FEATURE_LABEL, INPUTS_FEATURE } from "@heddle/contracts/api/pipelines/job-inputs";
import {
  type LabelSelector,
  type NeededOffer,
  type NodeScalars,
  type SharedRequest,
  type TaskRequest,
  UNLIMITED_TASKS,
} from "@heddle/scheduler/model";
import type { JobsState, NodeOffer } from "./records.ts";

const BYTES_PER_GB = 1e9;
const MB_PER_GB = 1_000;
const BYTES_PER_MIB = 2 ** 20;
const WHOLE_DEVICE_MILLI = 1_000;
/** Maximum tasks of a job, as in the contract. */
const MAX_TASKS = 4_096;

/** The project whose quota covers the replicas of deployed models. */
export const SERVING_PROJECT = "default";

/** The label that identifies a single node. */
export const NODE_LABEL = "heddle/node";

/** Prefix of the labels that name a node's executors. */
const EXECUTOR_LABEL = "heddle/executor-";
/** Prefix of the labels that name its profiles of Pods. */
const PROFILE_LABEL = "heddle/profile-";
/** Prefix of the labels that name its training algorithms, and blocks of plugins. */
const ALGORITHM_LABEL = "heddle/algorithm-";

/**
 * The executor of the job on its worker. A program runs in its own executor, and receives the
 * `algorithm` and its `config`; without a program the algorithm may be a plugin's block.
 */
export function executorOf(spec: SubmitJob): "process" | "container" | "training" | "block" {
  if (spec.container_image !== undefined) return "container";
  if (spec.command !== undefined) return "process";
  return spec.algorithm?.includes("/") ? "block" : "training";
}

/** Whether the job's `algorithm` is what runs, which its worker must offer. */
export function runsAlgorithm(spec: SubmitJob): boolean {
  const executor = executorOf(spec);
  return executor === "training" || executor === "block";
}

/**
 * The node's own labels, and one per executor and algorithm. Its name is the label `name`, unless
 * it sets another.
 */
export function nodeLabels(offer: NodeOffer): Readonly<Record<string, string>> {
  const { id, name, labels, executors, algorithms = [] } = offer;
  return {
    name,
    ...labels,
    [NODE_LABEL]: id,
    ...Object.fromEntries(executors.map((name) => [`${EXECUTOR_LABEL}${name}`, "true"])),
    ...Object.fromEntries(algorithms.map((name) => [`${ALGORITHM_LABEL}${name}`, "true"])),
  };
}

/**
 * The needs of each of `tasks` tasks: the job's amounts divided evenly, rounded up. Device
 * properties and network bandwidth are per task. GPUs per task are whole devices or one share of a
 * device (see `splitFault`).
 */
export function taskRequest(spec: SubmitJob, tasks: number): TaskRequest {
  const { resources } = spec;
  const milli = gpuMilliPerTask(resources.gpu_count, tasks);
  const isShare = milli < WHOLE_DEVICE_MILLI;
  const { gpu_type = [] } = resources;
  return {
    gpus: milli === 0 ? 0 : isShare ? 1 : milli / WHOLE_DEVICE_MILLI,
    gpuMilli: isShare ? milli : WHOLE_DEVICE_MILLI,
    gpuTypes: typeof gpu_type === "string" ? [gpu_type] : gpu_type,
    gpuMemoryGb: resources.gpu_memory_gb ?? 0,
    scalars: {
      cpuMilli: Math.ceil((resources.cpu_cores * 1_000) / tasks),
      memoryMib: Math.ceil((resources.memory_gb * BYTES_PER_GB) / BYTES_PER_MIB / tasks),
      localSsdGb: Math.ceil((resources.local_ssd_gb ?? 0) / tasks),
      ioOperationsPerSec: Math.ceil((resources.io_operations_per_sec ?? 0) / tasks),
      networkMbps: Math.ceil((resources.network_bandwidth_gbps ?? 0) * 1_000),
      tasks: 1,
    },
    nodeAffinity: selectorsOf(resources.node_affinity),
    nodeAntiAffinity: selectorsOf(resources.node_anti_affinity),
    infiniband: resources.infiniband_required,
    offers: offersNeeded(spec),
    tolerations: resources.tolerations,
  };
}

/** The job's resources that belong to no node; undefined for none. */
export function sharedRequest(spec: SubmitJob): SharedRequest | undefined {
  const storageMb = Math.ceil(sharedStorageMb(spec.resources.shared_storage_gb ?? 0));
  const shards = requestedShards(spec);
  if (storageMb === 0 && shards === 0) return undefined;
  return { storageMb, shards, placesPerShard: requestedFragments(spec) };
}

/** In MB, without binary rounding errors. */
export function sharedStorageMb(gb: number): number {
  return gb === 0 ? 0 : Number((gb * MB_PER_GB).toFixed(6));
}

/** What the node has for tasks, besides devices. */
export function nodeScalars(offer: NodeOffer): NodeScalars {
  const { cpuMilli, memoryMib, localSsdGb, ioOperationsPerSec, networkMbps } = offer;
  const tasks = offer.maxTasks ?? UNLIMITED_TASKS;
  return { cpuMilli, memoryMib, localSsdGb, ioOperationsPerSec, networkMbps, tasks };
}

/** Shards that the job needs on parameter servers; 0 without training. */
export function requestedShards(spec: SubmitJob): number {
  if (executorOf(spec) !== "training") return 0;
  const { parameter_servers: shards } = spec.config;
  return typeof shards === "number" && shards >= 1 ? Math.floor(shards) : 1;
}

/** The number of fragments of a training job's model; each has its own shards. */
export function requestedFragments({ algorithm, config }: SubmitJob): number {
  const { fragments } = config;
  // Another algorithm, as a plugin's, may use the field for something else.
  const isCut = algorithm === "weave" && typeof fragments === "number" && fragments >= 1;
  return isCut ? Math.floor(fragments) : 1;
}

/** What a node must offer to run the job; profiles and features are labels of workers. */
function offersNeeded(spec: SubmitJob): NeededOffer[] {
  const executor = executorOf(spec);
  const needed: NeededOffer[] = [{ kind: "executor", name: executor, labelPrefix: EXECUTOR_LABEL }];
  const { algorithm } = spec;
  if (runsAlgorithm(spec) && algorithm !== undefined) {
    needed.push({ kind: "algorithm", name: algorithm, labelPrefix: ALGORITHM_LABEL });
  }
  const profile = spec.container_options?.profile;
  if (profile !== undefined) {
    needed.push({ kind: "profile", name: profile, labelPrefix: PROFILE_LABEL });
  }
  if (spec.inputs?.length || spec.when?.length) {
    needed.push({ kind: "feature", name: INPUTS_FEATURE, labelPrefix: FEATURE_LABEL });
  }
  return needed;
}

/** What a replica of a deployed model holds: whole devices only. */
export function servingRequest(gpus: number): TaskRequest {
  return {
    gpus,
    gpuMilli: WHOLE_DEVICE_MILLI,
    gpuTypes: [],
    gpuMemoryGb: 0,
    scalars: {
      cpuMilli: 0,
      memoryMib: 0,
      localSsdGb: 0,
      ioOperationsPerSec: 0,
      networkMbps: 0,
      tasks: 0,
    },
    nodeAffinity: [],
    nodeAntiAffinity: [],
    infiniband: false,
    tolerations: [],
  };
}

/** The fault of an algorithm that no node offers, with those on offer. */
export function algorithmFault(
  { specs, nodes }: Pick<JobsState, "specs" | "nodes">,
  jobId: string,
): string | undefined {
  const spec = specs.get(jobId);
  if (!spec?.algorithm || !runsAlgorithm(spec)) return undefined;
  const offered = new Set([...nodes.values()].flatMap(({ offer }) => offer.algorithms ?? []));
  if (offered.has(spec.algorithm)) return undefined;
  const list = offered.size > 0 ? [...offered].sort().join(", ") : "none";
  return `AlgorithmUnavailable: no worker offers the algorithm ${spec.algorithm}; the workers offer: ${list}`;
}

/** Why the GPUs cannot be divided among this many tasks, if so. */
export function splitFault(gpuCount: number, tasks: number): string | undefined {
  const milli = gpuMilliPerTask(gpuCount, tasks);
  const isWhole = Number.isInteger(milli) && (milli > 0 || gpuCount === 0);
  if (isWhole && (milli < WHOLE_DEVICE_MILLI || milli % WHOLE_DEVICE_MILLI === 0)) return undefined;
  return `${gpuCount} GPUs over ${tasks} tasks are ${milli / WHOLE_DEVICE_MILLI} each: expected whole devices, or a share of one below 1 in thousandths`;
}

/**
 * GPU sizes of a task in thousandths, by level from 1 on: the shares of a device, then whole
 * devices.
 */
export function splitLevel(level: number): number {
  if (level < WHOLE_DEVICE_MILLI) return level;
  return (level - WHOLE_DEVICE_MILLI + 1) * WHOLE_DEVICE_MILLI;
}

/**
 * The fewest tasks such that the GPUs of each fit the largest node; 1 if no split does. Nodes of
 * GPU types that the job does not accept do not count.
 */
export function fewestTasks(
  spec: SubmitJob,
  nodes: Iterable<{ readonly offer: NodeOffer }>,
): number {
  const { gpu_count: gpus, gpu_type: types } = spec.resources;
  if (gpus <= 1) return 1;
  let largest = 0;
  for (const { offer } of nodes) {
    const { gpuType, gpuCount } = offer;
    if (types === undefined || [types].flat().includes(gpuType)) {
      largest = Math.max(largest, gpuCount);
    }
  }
  if (largest === 0) return 1;
  for (let tasks = Math.ceil(gpus / largest); tasks <= Math.min(gpus, MAX_TASKS); tasks++) {
    if (gpus % tasks === 0) return tasks;
  }
  return 1;
}

/** Rounded only to remove binary rounding errors. */
function gpuMilliPerTask(gpuCount: number, tasks: number): number {
  const milli = (gpuCount * WHOLE_DEVICE_MILLI) / tasks;
  const rounded = Math.round(milli);
  return Math.abs(milli - rounded) < 1e-6 ? rounded : milli;
}

/** Keyed by the map that they were built from, so that the variants of a spec share them. */
const selectorsOfMaps = new WeakMap<object, readonly LabelSelector[]>();

function selectorsOf(affinity: SubmitJob["resources"]["node_affinity"]): readonly LabelSelector[] {
  if (affinity === undefined) return [];
  if (Array.isArray(affinity)) return affinity;
  const made =
    selectorsOfMaps.get(affinity) ??
    Object.entries(affinity).map(([key, value]): LabelSelector => {
      return { key, operator: "in", values: [value] };
    });
  selectorsOfMaps.set(affinity, made);
  return made;
}
