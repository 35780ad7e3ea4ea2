import type { NodeSnapshot } from "../model.ts";
import type { ShareVector } from "./fair-share.ts";

/** Changes that are kept for whoever follows them. */
const MAX_CHANGES = 4_096;

/** Where a node has left: offers nothing, and no request accepts it. */
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
  },
  labels: {},
  taints: [],
  rack: "",
  fabric: "",
};

/**
 * The cluster's nodes by position, with sums over them that follow each node that comes, changes or
 * goes. A node keeps its position as long as it is there; one that has gone leaves its position
 * empty, so that the others keep theirs and their order.
 */
export class Roster {
  readonly #slots: NodeSnapshot[] = [];
  readonly #positions = new Map<string, number>();
  /** By amount: how many nodes have so much. */
  readonly #cpuMilli = new Map<number, number>();
  readonly #devices = new Map<number, number>();
  #totals: ShareVector = { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };
  /** Ids of the nodes that have changed, in order. */
  #changed: string[] = [];
  #dropped = 0;

  constructor(nodes: Iterable<NodeSnapshot> = []) {
    for (const node of nodes) this.put(node);
    this.#changed = [];
  }

  /** By position, the vacant ones among them. */
  get slots(): readonly NodeSnapshot[] {
    return this.#slots;
  }

  /** Whether no node is at the position now. */
  readonly vacant = (position: number): boolean => this.#slots[position] === VACANT;

  /** How many nodes there are. */
  get size(): number {
    return this.#positions.size;
  }

  /** The nodes, by their positions. */
  present(): NodeSnapshot[] {
    return this.#slots.filter((node) => node !== VACANT);
  }

  /** Undefined for a node that is not there. */
  position(id: string): number | undefined {
    return this.#positions.get(id);
  }

  get(id: string): NodeSnapshot | undefined {
    const position = this.#positions.get(id);
    return position === undefined ? undefined : this.#slots[position];
  }

  /** What all nodes have, lost nodes and sick devices left out. */
  get totals(): ShareVector {
    return this.#totals;
  }

  /** CPU of the node that has the most, at least 1. */
  get widestCpuMilli(): number {
    return widest(this.#cpuMilli);
  }

  /** Devices of the node that has the most, at least 1. */
  get widestDevices(): number {
    return widest(this.#devices);
  }

  /** A node that is new, which goes last, or has changed. Returns its position. */
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

  /** Ids of the nodes changed since the version; undefined where that is too long ago. */
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
