import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import type { ClusterResourcesReply, ResourceUse } from "@heddle/contracts/api/cluster";
import { CLUSTER_SETTINGS } from "@heddle/contracts/api/settings";
import { devicesOfLabel } from "@heddle/contracts/gpu-devices";
import type { NodeRecord } from "@heddle/control/jobs/records/records";
import { deploymentOf } from "@heddle/control/jobs/scheduling/divided-models";
import { servingPlaces } from "@heddle/control/jobs/scheduling/replica-claims";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { deviceOf, diskOf, hostOf } from "./hosts.ts";
import type { NodeView } from "./node-directory.ts";
import { sharedStorageUsedGb, taskUses } from "./task-uses.ts";

type Totals = ClusterResourcesReply["totals"];
type NodeResources = ClusterResourcesReply["nodes"][number];
type Amount = NodeResources["cpu_cores"];
type GpuPool = NodeResources["gpus"][number];
type TaskPlaces = NodeResources["tasks"];

/** A device as a pool of one, under an id that is equal on all nodes that report it. */
interface Device {
  readonly name: string;
  readonly pool: GpuPool;
}

/** A node's resources, and its devices, which other nodes of its machine may share. */
interface NodeAndDevices {
  readonly view: NodeResources;
  readonly devices: readonly Device[];
}

/**
 * Capacity, use and availability for jobs, in total. `onNode` gets those of each node, one a step.
 * The total counts what nodes of one machine share once.
 */
export function* clusterResources(
  nodes: readonly NodeView[],
  control: ControlPlane,
  onNode: (view: NodeResources) => void = () => {},
): Steps<Totals> {
  const cpuCores = new SharedAmount();
  const memoryBytes = new SharedAmount();
  const localSsdBytes = new SharedAmount();
  const devices = new Map<string, SharedDevice>();
  let tasks: TaskPlaces = { offered: 0, in_use: 0, available: 0 };
  const add = (node: NodeView) => {
    const { view, devices: own } = nodeResources(node, control);
    onNode(view);
    cpuCores.add(hostOf(node), view.cpu_cores);
    memoryBytes.add(hostOf(node), view.memory_bytes);
    localSsdBytes.add(diskOf(node), view.local_ssd_bytes);
    tasks = addPlaces(tasks, view.tasks);
    for (const { name, pool } of own) {
      const known = devices.get(name);
      if (known) known.merge(pool);
      else devices.set(name, new SharedDevice(pool));
    }
  };
  yield* forEachInSteps(nodes, add, 1);
  const gpus = new GpuPools();
  yield* forEachInSteps(devices.values(), (device) => gpus.add(device.pool()));
  return {
    nodes: nodes.length,
    cpu_cores: cpuCores.total(),
    memory_bytes: memoryBytes.total(),
    local_ssd_bytes: localSsdBytes.total(),
    tasks,
    gpus: gpus.list(),
    shared_storage_gb: sharedStorage(control),
  };
}

function nodeResources(node: NodeView, control: ControlPlane): NodeAndDevices {
  const record = control.state.nodes.get(node.id);
  const tasks = taskUses(control, node.id);
  const uses = [...replicaUses(node, record, control), ...tasks];
  const left = available(record, tasks, control);
  const of = (field: AmountField, offered: number, measured: number): Amount => {
    const inUse = uses.reduce((total, use) => total + use[field], 0);
    return { offered, in_use: inUse, available: left[field], measured: rounded(measured) };
  };
  const devices = devicesOf(node, uses, record);
  const view: NodeResources = {
    id: node.id,
    name: node.name,
    kind: node.kind,
    state: record === undefined || node.state !== "ready" ? node.state : record.state,
    executors: [...(node.offer?.executors ?? [])],
    labels: { ...node.offer?.labels },
    taints: [...(node.offer?.taints ?? [])],
    rack: node.offer?.rack ?? "",
    fabric: node.offer?.fabric ?? "",
    io_operations_per_sec: node.offer?.ioOperationsPerSec ?? 0,
    network_bandwidth_gbps: (node.offer?.networkMbps ?? 0) / 1_000,
    cpu_cores: of("cpu_cores", node.cpuCount, (node.cpuPercent / 100) * node.cpuCount),
    memory_bytes: of("memory_bytes", node.memoryBytes, node.memoryUsedBytes),
    local_ssd_bytes: of("local_ssd_bytes", node.diskBytes, node.diskUsedBytes),
    tasks: taskPlaces(record, tasks.length),
    gpus: poolsOf(devices),
    uses,
  };
  return { view, devices };
}

/** The places of a node that runs jobs; other nodes have none. */
function taskPlaces(record: NodeRecord | undefined, inUse: number): TaskPlaces {
  const offered = record ? (record.offer.maxTasks ?? null) : 0;
  const left = offered === null ? null : Math.max(0, offered - inUse);
  return { offered, in_use: inUse, available: record?.state === "ready" ? left : 0 };
}

/** The sum has no limit if one of them has none. */
function addPlaces(a: TaskPlaces, b: TaskPlaces): TaskPlaces {
  const sum = (x: number | null, y: number | null) => (x === null || y === null ? null : x + y);
  return {
    offered: sum(a.offered, b.offered),
    in_use: a.in_use + b.in_use,
    available: sum(a.available, b.available),
  };
}

type AmountField = "cpu_cores" | "memory_bytes" | "local_ssd_bytes";

/** What the scheduler may still assign there; nothing if the node takes no jobs. */
function available(
  record: NodeRecord | undefined,
  tasks: readonly ResourceUse[],
  { state }: ControlPlane,
): Readonly<Record<AmountField, number>> {
  if (record?.state !== "ready") return { cpu_cores: 0, memory_bytes: 0, local_ssd_bytes: 0 };
  const { cpuMilli, memoryMib, localSsdGb } = record.offer;
  const ratio =
    state.settings.get("overcommit_ratio")?.value ?? CLUSTER_SETTINGS.overcommit_ratio.default;
  const left = (field: AmountField, offered: number) =>
    Math.max(0, offered - tasks.reduce((total, use) => total + use[field], 0));
  return {
    cpu_cores: rounded(left("cpu_cores", (cpuMilli / 1_000) * ratio)),
    memory_bytes: Math.floor(left("memory_bytes", memoryMib * 2 ** 20 * ratio)),
    local_ssd_bytes: left("local_ssd_bytes", localSsdGb * 1e9),
  };
}

function sharedStorage(control: ControlPlane) {
  const offered =
    control.state.settings.get("shared_storage_gb")?.value ??
    CLUSTER_SETTINGS.shared_storage_gb.default;
  const inUse = sharedStorageUsedGb(control);
  return { offered, in_use: inUse, available: Math.max(0, offered - inUse) };
}

/**
 * Engines share the cores, so a replica reserves only memory and its GPU. It holds the devices of
 * its place from before it is loaded until it is gone.
 */
function replicaUses(
  { replicas }: NodeView,
  record: NodeRecord | undefined,
  { jobs }: ControlPlane,
): ResourceUse[] {
  const places = record ? servingPlaces(jobs, record) : [];
  const held = new Map(places.map(({ deployment, devices }) => [deployment, devices]));
  const running = replicas.filter(({ phase }) => phase !== "failed");
  const reported = running.map(({ deployment, load, info }) => {
    const placed = deploymentOf(deployment);
    const devices = held.get(placed) ?? devicesOfLabel(info?.device);
    held.delete(placed);
    return replicaUse(deployment, load.residentBytes, devices);
  });
  const others = [...held].map(([deployment, devices]) => replicaUse(deployment, 0, devices));
  return [...reported, ...others];
}

function replicaUse(id: string, memoryBytes: number, devices: readonly number[]): ResourceUse {
  return {
    kind: "replica",
    id,
    cpu_cores: 0,
    memory_bytes: memoryBytes,
    local_ssd_bytes: 0,
    gpus: devices.map((index) => ({ index, share: 1 })),
  };
}

function devicesOf(
  node: NodeView,
  uses: readonly ResourceUse[],
  record: NodeRecord | undefined,
): Device[] {
  const shares = new Map<number, number>();
  for (const { index, share } of uses.flatMap((use) => use.gpus)) {
    shares.set(index, Math.min(1, (shares.get(index) ?? 0) + share));
  }
  const quarantined = new Set(record?.quarantined.map(({ device }) => device));
  return node.gpus.map((gpu) => {
    const { index, simulated } = gpu;
    const inUse = shares.get(index) ?? 0;
    const takesJobs = record?.state === "ready" && !quarantined.has(index);
    const pool = {
      type: gpu.name,
      simulated,
      count: 1,
      in_use: inUse,
      available: takesJobs ? 1 - inUse : 0,
      quarantined: quarantined.has(index) ? 1 : 0,
      memory_bytes_each: gpu.memoryBytes,
    };
    return { name: deviceOf(node, gpu), pool };
  });
}

/** A device that several nodes may report: it is in use if any node uses it. */
class SharedDevice {
  readonly #first: GpuPool;
  #inUse: number;
  #quarantined: number;
  /** Undefined while one node reports it. */
  #takesJobs: boolean | undefined;

  constructor(pool: GpuPool) {
    this.#first = pool;
    this.#inUse = pool.in_use;
    this.#quarantined = pool.quarantined;
  }

  merge(pool: GpuPool): void {
    this.#takesJobs = (this.#takesJobs ?? this.#first.available > 0) || pool.available > 0;
    this.#inUse = Math.min(1, this.#inUse + pool.in_use);
    this.#quarantined = Math.max(this.#quarantined, pool.quarantined);
  }

  pool(): GpuPool {
    if (this.#takesJobs === undefined) return this.#first;
    const available = this.#takesJobs ? 1 - this.#inUse : 0;
    return { ...this.#first, in_use: this.#inUse, available, quarantined: this.#quarantined };
  }
}

/** GPUs of one type and memory form a pool; simulated ones form their own. */
class GpuPools {
  readonly #pools = new Map<string, GpuPool>();

  add(pool: GpuPool): void {
    const key = `${pool.type}\n${pool.memory_bytes_each}\n${pool.simulated}`;
    const known = this.#pools.get(key);
    this.#pools.set(key, {
      ...pool,
      count: (known?.count ?? 0) + pool.count,
      in_use: rounded((known?.in_use ?? 0) + pool.in_use),
      available: rounded((known?.available ?? 0) + pool.available),
      quarantined: (known?.quarantined ?? 0) + pool.quarantined,
    });
  }

  list(): GpuPool[] {
    return [...this.#pools.values()].sort((a, b) => a.type.localeCompare(b.type));
  }
}

function poolsOf(devices: readonly Device[]): GpuPool[] {
  const pools = new GpuPools();
  for (const { pool } of devices) pools.add(pool);
  return pools.list();
}

/**
 * The sum of an amount. Nodes with a common owner report the same capacity and use, which count
 * once, and divide what remains for jobs.
 */
class SharedAmount {
  /** Keyed by owner: the largest capacity and use that a node of it reports. */
  readonly #owners = new Map<string, Pick<Amount, "offered" | "measured">>();
  readonly #total = { offered: 0, in_use: 0, available: 0, measured: 0 };

  add(owner: string, { offered, in_use, available, measured }: Amount): void {
    const before = this.#owners.get(owner) ?? { offered: 0, measured: 0 };
    const now = {
      offered: Math.max(before.offered, offered),
      measured: Math.max(before.measured, measured),
    };
    this.#owners.set(owner, now);
    this.#total.offered += now.offered - before.offered;
    this.#total.measured += now.measured - before.measured;
    this.#total.in_use += in_use;
    this.#total.available += available;
  }

  total(): Amount {
    const { offered, in_use, available, measured } = this.#total;
    return {
      offered: rounded(offered),
      in_use: rounded(in_use),
      available: rounded(available),
      measured: rounded(measured),
    };
  }
}

/** To thousandths, the unit of shares and cores. */
function rounded(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}
