import type { QueuedJob, RunningJob, TaskRequest } from "@heddle/scheduler/model";
import { entryKey, replicaEntry } from "@heddle/scheduler/plan-entry";
import type { JobIndex } from "../index/job-index.ts";
import {
  type JobsState,
  type NodeRecord,
  type ReplicaRecord,
  type ReplicaResources,
  replicaKey,
  type ServingHold,
} from "../records/records.ts";
import { NODE_LABEL, SERVING_PROJECT, servingRequest } from "../records/task-request.ts";
import { deploymentOf, isDividedOnGpus } from "./divided-models.ts";

/**
 * The replicas that still need a place, as the scheduler queues them: one a deployment at a time,
 * as no two share a node. Stages of one are a gang. They rank above training of the same qos, and so
 * may evict preemptible training.
 */
export function replicaClaims(state: JobsState): QueuedJob[] {
  const claims: QueuedJob[] = [];
  for (const deployment of state.deployments.keys()) {
    const claim = replicaClaim(state, deployment);
    if (claim) claims.push(claim);
  }
  return claims;
}

/**
 * The claim of one deployment; undefined where it has all the places that it wants. It is undefined
 * too where a replica has failed for good: the next would only evict others and fail alike.
 */
export function replicaClaim(state: JobsState, deployment: string): QueuedJob | undefined {
  const needs = gpuNeeds(state, deployment);
  if (!needs) return undefined;
  if (dividesGpus(state, deployment)) return awaitedStages(state, deployment, needs);
  const places = [...state.replicas.values()].filter((place) => place.deployment === deployment);
  if (places.some(({ failure }) => failure)) return undefined;
  const kept = places.filter((place) => isSound(state, place));
  if (kept.length >= needs.replicas) return undefined;
  const taken = places.map(({ nodeId }) => nodeId);
  return claimOf(deployment, 1, claimRequest(needs, taken));
}

function claimOf(deployment: string, tasks: number, request: TaskRequest): QueuedJob {
  return {
    entry: replicaEntry(deployment),
    project: SERVING_PROJECT,
    queue: "default",
    kind: "serving",
    qosLevel: "standard",
    priority: 0,
    preemptible: false,
    tasks,
    request,
    submittedAtMs: 0,
    waitingFor: [],
    notBeforeMs: 0,
    sameRack: false,
  };
}

/** The stages of a replica that wait for GPUs; undefined where none do. */
function awaitedStages(
  { stageClaims, replicas }: JobsState,
  deployment: string,
  needs: ReplicaNeeds,
): QueuedJob | undefined {
  const claim = stageClaims.get(deployment);
  if (!claim) return undefined;
  const { stages, nodes } = claim;
  const taken = [...replicas.values()].filter((place) => place.deployment === deployment);
  const request = claimRequest(
    needs,
    taken.map(({ nodeId }) => nodeId),
  );
  return claimOf(deployment, stages, {
    ...request,
    nodeAffinity: [{ key: NODE_LABEL, operator: "in", values: nodes }],
    nodeRanks: nodes.slice(0, stages).map((nodeId) => ({ nodeId, rank: 1 })),
    onePerNode: true,
  });
}

/**
 * What this many stages of a deployment hold that workers divide over GPUs, each on another node;
 * undefined for other deployments. The leader chooses the nodes, as only it knows what stages need.
 */
export function stageClaim(
  state: JobsState,
  deployment: string,
  stages: number,
): QueuedJob | undefined {
  const needs = dividesGpus(state, deployment) ? gpuNeeds(state, deployment) : undefined;
  return needs && claimOf(deployment, stages, claimRequest(needs, []));
}

/**
 * The GPUs of a node that its stage of the deployment holds, or could get: now, or if others freed
 * theirs. None where it has none for one.
 */
export function stageDevices(
  state: JobsState,
  { capacity }: Pick<JobIndex, "capacity">,
  deployment: string,
  when: "now" | "freed" = "now",
): (nodeId: string) => readonly number[] {
  const claim = stageClaim(state, deployment, 1);
  const open = (request: TaskRequest, nodeId: string) =>
    when === "now" ? capacity.devicesFor(request, nodeId) : capacity.devicesIfIdle(request, nodeId);
  return (nodeId) => {
    const { quarantined = [], serving = [] } = state.nodes.get(nodeId) ?? {};
    // A worker that comes back may still have a stage.
    const left = serving.find(
      ({ deployment: key, devices }) =>
        deploymentOf(key) === deployment && devices.length === claim?.request.gpus,
    );
    const held = state.replicas.get(replicaKey({ deployment, nodeId })) ?? left;
    if (!held) return (claim && open(claim.request, nodeId)) ?? [];
    const isHealthy = !quarantined.some(({ device }) => held.devices.includes(device));
    return isHealthy ? held.devices : [];
  };
}

/** What the scheduler is to find for a deployment's replicas, and for how many. */
interface ReplicaNeeds {
  readonly replicas: number;
  readonly resources: ReplicaResources;
  /** The device that it names by its index on the node. */
  readonly gpuIndex?: number | undefined;
}

/** What any GPU will do for that a deployment names by hand. */
const NAMED_GPU: ReplicaResources = { gpuCount: 1, gpuTypes: [], gpuMemoryGb: 0 };

/** Whether workers divide the deployment's replicas, each stage on GPUs. A divided one stays so. */
export function dividesGpus(state: JobsState, key: string): boolean {
  const needs = gpuNeeds(state, key);
  if (!needs) return false;
  if (isDividedOnGpus(state, state.deployments.get(key)!.spec, needs.resources)) return true;
  return [...state.replicas.values()].some(({ deployment, stage }) => stage && deployment === key);
}

/** Why workers do not divide a deployment that needs GPUs and leaves it open; undefined for others. */
export function undividedOnGpus(state: JobsState, key: string): string | undefined {
  const spec = state.deployments.get(key)?.spec;
  const isOpen = spec?.engine === "llama" && (spec.placement?.mode ?? "auto") === "auto";
  if (!isOpen || !gpuNeeds(state, key) || dividesGpus(state, key)) return undefined;
  return "its weights fit the GPUs of one node, or no node with such GPUs is known";
}

/** The GPUs of each replica, or stage of one; undefined for a deployment that needs none. */
function gpuNeeds(state: JobsState, key: string): ReplicaNeeds | undefined {
  const deployment = state.deployments.get(key);
  if (!deployment || runsWithoutGpu(state, key)) return undefined;
  const { resources, replicas, spec } = deployment;
  if (resources) return typeof replicas === "number" ? { replicas, resources } : undefined;
  const { device = "cpu" } = spec.options;
  if (device === "cpu") return undefined;
  const gpuIndex = Number(device);
  const wanted = replicas === "every-worker" ? nodesWith(state, gpuIndex) : replicas;
  return { replicas: wanted, resources: NAMED_GPU, gpuIndex };
}

/** The nodes that can run a replica on that device; at least one, so that a claim waits and explains itself. */
function nodesWith({ nodes }: JobsState, gpuIndex: number): number {
  let count = 0;
  for (const { state, offer, quarantined } of nodes.values()) {
    const isQuarantined = quarantined.some(({ device }) => device === gpuIndex);
    if (state === "ready" && gpuIndex < offer.gpuCount && !isQuarantined) count++;
  }
  return Math.max(1, count);
}

/**
 * Whether the deployment would have GPUs and makes do with CPUs, since no node has any. A cluster
 * that no node has joined yet says nothing of that, and a lost node's GPUs are expected back.
 */
export function runsWithoutGpu({ deployments, nodes }: JobsState, deployment: string): boolean {
  if (!deployments.get(deployment)?.resources?.orCpu || nodes.size === 0) return false;
  for (const { offer } of nodes.values()) if (offer.gpuCount > 0) return false;
  return true;
}

/** Whether the place is on a node that takes work, with devices that are well. */
function isSound(state: JobsState, place: ReplicaRecord): boolean {
  return isIn(state, place, "ready");
}

function isIn(
  state: JobsState,
  { nodeId, devices, failure, evicted }: ReplicaRecord,
  nodeState: NodeRecord["state"],
): boolean {
  if (failure || evicted) return false;
  const node = state.nodes.get(nodeId);
  if (node?.state !== nodeState) return false;
  return !node.quarantined.some(({ device }) => devices.includes(device));
}

/**
 * Excludes workers of an earlier build that run tasks as Pods, and no models: they have no GPU for
 * a replica.
 */
const GPUS_OF_PODS = { key: "heddle/gpus", operator: "in" as const, values: ["pods"] };

function claimRequest(
  { resources, gpuIndex }: ReplicaNeeds,
  taken: readonly string[],
): TaskRequest {
  const { gpuCount, gpuTypes, gpuMemoryGb } = resources;
  const elsewhere = { key: NODE_LABEL, operator: "in" as const, values: taken };
  return {
    ...servingRequest(gpuCount),
    gpuTypes,
    gpuMemoryGb,
    ...(gpuIndex !== undefined && { gpuIndex }),
    nodeAntiAffinity: [
      ...(taken.length > 0 ? [elsewhere] : []),
      ...(gpuCount > 0 ? [GPUS_OF_PODS] : []),
    ],
  };
}

/** The deployment's replicas that have failed for good, by node. */
export function failedReplicas(
  { replicas }: Pick<JobsState, "replicas">,
  deployment: string,
): readonly ReplicaRecord[] {
  return [...replicas.values()].filter((place) => place.failure && place.deployment === deployment);
}

/**
 * For each deployment that holds GPUs, the places of the replicas that are to run. They are the
 * oldest sound ones, and those on draining nodes for which no other serves yet. Of one that workers
 * divide these are all places for stages.
 */
export function wantedReplicas(
  state: JobsState,
): ReadonlyMap<string, ReadonlyMap<string, ReplicaRecord>> {
  const wanted = new Map<string, Map<string, ReplicaRecord>>();
  const replicas = new Map<string, number>();
  for (const deployment of state.deployments.keys()) {
    const needs = gpuNeeds(state, deployment);
    if (!needs) continue;
    const isDivided = dividesGpus(state, deployment);
    wanted.set(deployment, new Map());
    replicas.set(deployment, isDivided ? Number.POSITIVE_INFINITY : needs.replicas);
  }
  const oldestFirst = [...state.replicas.values()].sort(
    (a, b) => a.grantedAtMs - b.grantedAtMs || (a.nodeId < b.nodeId ? -1 : 1),
  );
  for (const place of oldestFirst) {
    const own = wanted.get(place.deployment);
    if (!own || !isSound(state, place)) continue;
    if (own.size < replicas.get(place.deployment)!) own.set(place.nodeId, place);
  }
  for (const place of oldestFirst) {
    if (!isIn(state, place, "draining") || place.readyAtMs === undefined) continue;
    const own = wanted.get(place.deployment);
    if (own && serving(own) < replicas.get(place.deployment)!) own.set(place.nodeId, place);
  }
  return wanted;
}

function serving(places: ReadonlyMap<string, ReplicaRecord>): number {
  return [...places.values()].filter(({ readyAtMs }) => readyAtMs !== undefined).length;
}

/** A replica that holds devices of a node, and since when. */
interface ServingPlace extends ServingHold {
  readonly sinceMs: number;
}

/** The replicas that hold devices of the node: those that the scheduler has placed, and others. */
export function servingPlaces(index: JobIndex, node: NodeRecord): ServingPlace[] {
  const placed = [...(index.replicasByNode.get(node.offer.id)?.values() ?? [])];
  const names = new Set(placed.map(({ deployment }) => deployment));
  const others = node.serving.filter(({ deployment }) => !names.has(deployment));
  return [
    ...placed.map(({ deployment, devices, grantedAtMs: sinceMs }) => {
      return { deployment, devices, sinceMs };
    }),
    ...others.map((hold) => ({ ...hold, sinceMs: node.joinedAtMs })),
  ];
}

/** The same as running jobs, which are never evicted. */
export function servingEntries(index: JobIndex, node: NodeRecord): RunningJob[] {
  const { id: nodeId } = node.offer;
  return servingPlaces(index, node).map(({ deployment, devices, sinceMs }) => ({
    id: `${entryKey(replicaEntry(deployment))} on ${nodeId}`,
    project: SERVING_PROJECT,
    queue: "default",
    kind: "serving",
    qosLevel: "guaranteed",
    priority: 0,
    preemptible: false,
    tasks: 1,
    request: servingRequest(devices.length),
    placements: [{ nodeId, devices }],
    startedAtMs: sinceMs,
    checkpointedAtMs: sinceMs,
  }));
}
