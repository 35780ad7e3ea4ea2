import type { NodeSnapshot } from "../model.ts";
import type { ShareVector } from "./fair-share.ts";

/** Changes that are kept for readers. */
const MAX_CHANGES = 4_096;

/** A vacant position: it offers nothing, and no request accepts it. */
const VACANT: NodeSnapshot = {
  id: "",
  state: "lost",
  gpuType: "",
  gpuMemoryGb: 0,
  devices: [],
  capacity: {
    cpuMilli: 0,
    memoryMib: 0,
    localSsdGb: 0,
    ioOperationsPerSec: 0,
    networkMbps: 0,
    tasks: 0,
  },
  labels: {},
  taints: [],
  rack: "",
  fabric: "",
};

/**
 * The cluster's nodes by position, with sums that are updated with every change. A node keeps its
 * position; one that has left leaves it vacant, so that the others keep theirs and their order.
 */
export class Roster {
  readonly #slots: NodeSnapshot[] = [];
  readonly #positions = new Map<string, number>();
  /** Keyed by amount: the number of nodes with it. */
  readonly #cpuMilli = new Map<number, number>();
  readonly #devices = new Map<number, number>();
  #totals: ShareVector = { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };
  /** Ids of the changed nodes, in order. */
  #changed: string[] = [];
  #dropped = 0;

  constructor(nodes: Iterable<NodeSnapshot> = []) {
    for (const node of nodes) this.put(node);
    this.#changed = [];
  }

  /** Indexed by position, including vacant ones. */
  get slots(): readonly NodeSnapshot[] {
    return this.#slots;
  }

  /** Whether no node is at the position now. */
  readonly vacant = (position: number): boolean => this.#slots[position] === VACANT;

  /** The number of nodes. */
  get size(): number {
    return this.#positions.size;
  }

  /** The nodes, by their positions. */
  present(): NodeSnapshot[] {
    return this.#slots.filter((node) => node !== VACANT);
  }

  /** Undefined for an unknown node. */
  position(id: string): number | undefined {
    return this.#positions.get(id);
  }

  get(id: string): NodeSnapshot | undefined {
    const position = this.#positions.get(id);
    return position === undefined ? undefined : this.#slots[position];
  }

  /** The sum over all nodes, without lost nodes and quarantined devices. */
  get totals(): ShareVector {
    return this.#totals;
  }

  /** CPU of the largest node, at least 1. */
  get widestCpuMilli(): number {
    return widest(this.#cpuMilli);
  }

  /** Devices of the largest node, at least 1. */
  get widestDevices(): number {
    return widest(this.#devices);
  }

  /** Adds a node, at the end, or changes one. Returns its position. */
  put(node: NodeSnapshot): number {
    const known = this.#positions.get(node.id);
    const position = known ?? this.#slots.length;
    if (known !== undefined) this.#count(this.#slots[known]!, -1);
    this.#slots[position] = node;
    this.#positions.set(node.id, position);
    this.#count(node, 1);
    this.#note(node.id);
    return position;
  }

  /** Returns the position that is vacant now. */
  remove(id: string): number | undefined {
    const position = this.#positions.get(id);
    if (position === undefined) return undefined;
    this.#count(this.#slots[position]!, -1);
    this.#slots[position] = VACANT;
    this.#positions.delete(id);
    this.#note(id);
    return position;
  }

  /** Grows by one with each change. */
  get version(): number {
    return this.#dropped + this.#changed.length;
  }

  /** Ids of the nodes changed since the version; undefined if that is too long ago. */
  changedSince(version: number): ReadonlySet<string> | undefined {
    if (version < this.#dropped) return undefined;
    return new Set(this.#changed.slice(version - this.#dropped));
  }

  #note(id: string): void {
    this.#changed.push(id);
    if (this.#changed.length <= MAX_CHANGES) return;
    const cut = this.#changed.length >> 1;
    this.#changed = this.#changed.slice(cut);
    this.#dropped += cut;
  }

  #count({ state, devices, capacity }: NodeSnapshot, sign: 1 | -1): void {
    countOne(this.#cpuMilli, capacity.cpuMilli, sign);
    countOne(this.#devices, devices.length, sign);
    if (state === "lost") return;
    const healthy = devices.filter((device) => device.healthy).length;
    const { gpuMilli, cpuMilli, memoryMib } = this.#totals;
    this.#totals = {
      gpuMilli: gpuMilli + sign * 1000 * healthy,
      cpuMilli: cpuMilli + sign * capacity.cpuMilli,
      memoryMib: memoryMib + sign * capacity.memoryMib,
    };
  }
}

function countOne(counts: Map<number, number>, amount: number, sign: 1 | -1): void {
  const count = (counts.get(amount) ?? 0) + sign;
  if (count > 0) counts.set(amount, count);
  else counts.delete(amount);
}

/** Nodes are of few kinds. */
function widest(counts: ReadonlyMap<number, number>): number {
  let most = 1;
  for (const amount of counts.keys()) most = Math.max(most, amount);
  return most;
}
