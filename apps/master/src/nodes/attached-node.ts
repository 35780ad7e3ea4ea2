import type { ReplicaStatus } from "@heddle/contracts/engine";
import type { Gpu__Output } from "@heddle/contracts/generated/heddle/v1/Gpu";
import type { Heartbeat__Output } from "@heddle/contracts/generated/heddle/v1/Heartbeat";
import type { Register__Output } from "@heddle/contracts/generated/heddle/v1/Register";
import { decodeReplica } from "@heddle/rpc/node-codec";
import type { GpuView, NodeJobOffer, NodeView } from "./node-directory.ts";
import type { WorkerLink } from "./worker-link.ts";

/** Intervals without a heartbeat after which a node gets no new work. */
export const SUSPECT_INTERVALS = 3;

/** Bound on the length of a machine's id; a boot id has 36 characters. */
const MAX_HOST_ID = 128;
/** Bound on the length of the reasons that a node gives. */
const MAX_REASON = 1_024;

/** Bound on the control groups of a node. */
const MAX_LIMITS = 16;

/** What a master knows of one node while its Attach stream is open. */
export class AttachedNode {
  readonly register: Register__Output;
  /** Absent for nodes that serve no inference. */
  readonly link: WorkerLink | undefined;
  readonly attachedAtMs: number;
  lastSeenMs: number;
  replicas: readonly ReplicaStatus[] = [];
  /** Report intervals of the master that have passed since the last heartbeat. */
  silentIntervals = 0;
  /** Increases with every heartbeat, to detect the first one after a command. */
  heartbeats: number;
  #byDeployment: ReadonlyMap<string, ReplicaStatus> = new Map();
  #heartbeat: Heartbeat__Output | undefined;
  /** Until the next heartbeat, or until the state changes; all readers share it. */
  #view: NodeView | undefined;

  /** `heartbeats` is at least the count of an earlier attachment of the same process. */
  constructor(
    register: Register__Output,
    link: WorkerLink | undefined,
    nowMs: number,
    heartbeats = 0,
  ) {
    this.register = register;
    this.link = link;
    this.attachedAtMs = nowMs;
    this.lastSeenMs = nowMs;
    this.heartbeats = heartbeats;
  }

  get id(): string {
    return this.register.nodeId;
  }

  /**
   * Returns whether more than figures changed: which replicas it has, their phases, or whether it
   * works for this cluster. Throws an AppError on a phase that this version does not know.
   */
  onHeartbeat(heartbeat: Heartbeat__Output, nowMs: number): boolean {
    const before = this.#standing();
    this.replicas = heartbeat.replicas.map(decodeReplica);
    this.#byDeployment = new Map(this.replicas.map((replica) => [replica.deployment, replica]));
    this.#heartbeat = heartbeat;
    this.#view = undefined;
    this.lastSeenMs = nowMs;
    this.heartbeats += 1;
    this.silentIntervals = 0;
    return this.#standing() !== before;
  }

  /** Equal between two reports that differ in figures alone. */
  #standing(): string | undefined {
    if (!this.#heartbeat) return undefined;
    const replicas = this.replicas.map(({ deployment, phase }) => `${deployment} ${phase}`);
    const isSuspect = this.silentIntervals > SUSPECT_INTERVALS;
    return [this.refusesLeader ?? "", this.executorFault ?? "", isSuspect, ...replicas].join("\n");
  }

  get hasReported(): boolean {
    return this.#heartbeat !== undefined;
  }

  /** Why it does not work for this master's cluster or its leader; undefined if it does. */
  get refusesLeader(): string | undefined {
    return this.#heartbeat?.refusesLeader.slice(0, MAX_REASON) || undefined;
  }

  /** Why it runs no tasks now; undefined if it can. */
  get executorFault(): string | undefined {
    return this.#heartbeat?.executorFault.slice(0, MAX_REASON) || undefined;
  }

  #state(): NodeView["state"] {
    if (this.silentIntervals > SUSPECT_INTERVALS) return "suspect";
    return this.refusesLeader === undefined ? "ready" : "refusing";
  }

  replica(deployment: string): ReplicaStatus | undefined {
    return this.#byDeployment.get(deployment);
  }

  /**
   * Sequences in use on the replica: this master's own count, plus the worker's count of other
   * masters'. A count of both from one report would be older than the first.
   */
  usedSequences({ deployment, load, others }: ReplicaStatus): number {
    const own = this.link?.taken.sequences(deployment) ?? 0;
    return own + (others ?? Math.max(0, load.running + load.waiting - own));
  }

  /**
   * Upper bound on the replica's open calls: this master's, plus one per sequence of other masters,
   * because a report does not assign sequences to calls.
   */
  openCalls(replica: ReplicaStatus): number {
    const { deployment } = replica;
    const others = this.usedSequences(replica) - (this.link?.taken.sequences(deployment) ?? 0);
    return others + (this.link?.taken.calls(deployment) ?? 0);
  }

  /** `wallOffsetMs` converts monotonic times to wall-clock times. */
  view(wallOffsetMs: number): NodeView {
    const state = this.#state();
    if (this.#view?.state !== state) this.#view = this.#newView(wallOffsetMs, state);
    return this.#view;
  }

  #newView(wallOffsetMs: number, state: NodeView["state"]): NodeView {
    const { register } = this;
    const heartbeat = this.#heartbeat;
    return {
      id: register.nodeId,
      kind: register.kind === "NODE_KIND_WORKER" ? "worker" : "parameter-server",
      name: register.name,
      address: register.address,
      version: register.version,
      taskIsolation: register.taskIsolation,
      incarnation: register.incarnation,
      state,
      refusesLeader: this.refusesLeader,
      executorFault: this.executorFault,
      attachedAtMs: Math.round(this.attachedAtMs + wallOffsetMs),
      lastSeenMs: Math.round(this.lastSeenMs + wallOffsetMs),
      hostId: register.hardware?.hostId.slice(0, MAX_HOST_ID),
      diskId: register.hardware?.diskId,
      limits: register.hardware?.limits.slice(0, MAX_LIMITS).map(({ id, ...limit }) => {
        return { id: id.slice(0, MAX_HOST_ID), ...limit };
      }),
      residentBytes: heartbeat?.residentBytes,
      cpuPercent: heartbeat?.cpuPercent ?? 0,
      cpuCount: register.hardware?.cpuCount ?? 0,
      memoryBytes: register.hardware?.memoryBytes ?? 0,
      memoryUsedBytes: heartbeat?.memoryUsedBytes ?? 0,
      diskBytes: heartbeat?.diskTotalBytes ?? 0,
      diskUsedBytes: heartbeat ? heartbeat.diskTotalBytes - heartbeat.diskFreeBytes : 0,
      gpus: (heartbeat?.gpus ?? register.hardware?.gpus ?? []).map(gpuView),
      deviceReadings: heartbeat?.deviceReadings ?? 0,
      replicas: this.replicas,
      refusals: heartbeat?.refusals ?? undefined,
      offer: offerOf(register),
    };
  }
}

/** A worker without executors runs no jobs. */
function offerOf(register: Register__Output): NodeJobOffer | undefined {
  const { incarnation, labels, taints, rack, fabric, executors, hardware } = register;
  const { algorithms, environments, algorithmSchemas } = register;
  if (executors.length === 0) return undefined;
  return {
    incarnation,
    labels,
    taints,
    rack,
    fabric,
    executors,
    algorithms,
    environments,
    algorithmSchemas,
    localSsdBytes: hardware?.localSsdBytes ?? 0,
    ioOperationsPerSec: hardware?.ioOperationsPerSec ?? 0,
    networkMbps: hardware?.networkMbps ?? 0,
    maxTasks: register.maxTasks || undefined,
    isMaxTasksChosen: register.maxTasksChosen,
  };
}

function gpuView(gpu: Gpu__Output): GpuView {
  const { index, uuid, name, memoryBytes, memoryUsedBytes } = gpu;
  const { utilizationPercent, temperatureCelsius, powerWatts, simulated, fault } = gpu;
  return {
    index,
    uuid,
    name,
    memoryBytes,
    memoryUsedBytes,
    utilizationPercent,
    temperatureCelsius,
    powerWatts,
    simulated,
    fault,
  };
}
