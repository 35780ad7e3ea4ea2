import type { NodeSnapshot, SharedAmounts, SharedRequest, TaskPlacement } from "../model.ts";
import { ChangeLog } from "./change-log.ts";
import type { Roster } from "./roster.ts";
import type { RequestShape } from "./shape.ts";
import { addShared, NOTHING_SHARED, shareOf } from "./shared-amounts.ts";
import { offered, SCALARS, WHOLE_DEVICE_MILLI } from "./units.ts";

/** The maximum number of devices of a node. */
export const MAX_DEVICES = 64;

/** The share of spare rows, relative to those in use, for nodes that join. */
const SPARE_ROWS = 1 / 8;

/**
 * The free amounts of every node, in typed arrays indexed by the node's position in the roster.
 * Node names are not part of it, and no decision reads them.
 *
 * - All amounts are integers, so counting copies is exact.
 * - 0 <= gpuFree <= 1000 for each device.
 * - A scalar is negative only if the snapshot itself was over capacity (a node that shrank); then
 *   nothing fits there.
 */
export class Ledger {
  readonly roster: Roster;
  /** The recent changes of nodes, which an index must evaluate again. */
  readonly changes: ChangeLog;
  #stride: number;
  #gpuFree: Int32Array;
  #deviceCount: Uint8Array;
  #scalarFree: Float64Array;
  /** The free cluster-wide resources. */
  shared: SharedAmounts = NOTHING_SHARED;

  private constructor(
    roster: Roster,
    stride: number,
    gpuFree: Int32Array,
    deviceCount: Uint8Array,
    scalarFree: Float64Array,
  ) {
    this.roster = roster;
    this.changes = new ChangeLog(roster.slots.length);
    this.#stride = stride;
    this.#gpuFree = gpuFree;
    this.#deviceCount = deviceCount;
    this.#scalarFree = scalarFree;
  }

  /**
   * The empty cluster: each node's capacity under the overcommit ratio, quarantined devices at 0.
   */
  static ofCapacity(roster: Roster, overcommitRatio: number): Ledger {
    const rows = roster.slots.length;
    const stride = roster.widestDevices;
    const ledger = new Ledger(
      roster,
      stride,
      new Int32Array(rows * stride),
      new Uint8Array(rows),
      new Float64Array(rows * SCALARS.length),
    );
    for (let node = 0; node < rows; node++) ledger.reset(node, overcommitRatio);
    return ledger;
  }

  /** Indexed by position, as in the roster. */
  get nodes(): readonly NodeSnapshot[] {
    return this.roster.slots;
  }

  /** Columns a node in `gpuFree`, of which a node uses as many as it has devices. */
  get stride(): number {
    return this.#stride;
  }

  /** Thousandths free, by node * stride + device. */
  get gpuFree(): Int32Array {
    return this.#gpuFree;
  }

  get deviceCount(): Uint8Array {
    return this.#deviceCount;
  }

  /** Indexed by node * SCALARS.length + column. */
  get scalarFree(): Float64Array {
    return this.#scalarFree;
  }

  /** Sets an added or changed node to its full capacity. */
  reset(node: number, overcommitRatio: number): void {
    const snapshot = this.nodes[node]!;
    const { devices } = snapshot;
    if (devices.length > MAX_DEVICES)
      throw new RangeError(`a node has ${devices.length} GPUs, over ${MAX_DEVICES}`);
    if (node >= this.#deviceCount.length || devices.length > this.#stride) {
      this.#grow(node + 1, Math.max(this.#stride, devices.length));
    }
    this.#deviceCount[node] = devices.length;
    for (let d = 0; d < this.#stride; d++) {
      this.#gpuFree[node * this.#stride + d] = devices[d]?.healthy ? WHOLE_DEVICE_MILLI : 0;
    }
    SCALARS.forEach((name, column) => {
      this.#scalarFree[node * SCALARS.length + column] = offered(snapshot, name, overcommitRatio);
    });
    this.changes.push(node);
  }

  /** Reserves `rows` rows and some more, so that nodes which join one by one cost little. */
  #grow(rows: number, stride: number): void {
    const known = this.#deviceCount.length;
    const all = rows > known ? Math.ceil(rows * (1 + SPARE_ROWS)) : known;
    const gpuFree = new Int32Array(all * stride);
    for (let node = 0; node < known; node++) {
      const from = node * this.#stride;
      gpuFree.set(this.#gpuFree.subarray(from, from + this.#stride), node * stride);
    }
    const deviceCount = new Uint8Array(all);
    deviceCount.set(this.#deviceCount);
    const scalarFree = new Float64Array(all * SCALARS.length);
    scalarFree.set(this.#scalarFree);
    this.#stride = stride;
    this.#gpuFree = gpuFree;
    this.#deviceCount = deviceCount;
    this.#scalarFree = scalarFree;
  }

  /** A copy for one decision, which does not follow changes of nodes. */
  clone(): Ledger {
    const copy = new Ledger(
      this.roster,
      this.#stride,
      this.#gpuFree.slice(),
      this.#deviceCount,
      this.#scalarFree.slice(),
    );
    copy.shared = this.shared;
    return copy;
  }

  /** The lesser of two ledgers for each node: a task placed here fits in either. */
  static lesser(a: Ledger, b: Ledger): Ledger {
    const both = a.clone();
    for (let node = 0; node < a.nodes.length; node++) both.setLesser(node, a, b);
    return both;
  }

  /** Sets one node to what is free in both. */
  setLesser(node: number, a: Ledger, b: Ledger): void {
    for (let i = node * this.#stride; i < (node + 1) * this.#stride; i++) {
      this.#gpuFree[i] = Math.min(a.gpuFree[i]!, b.gpuFree[i]!);
    }
    for (let i = node * SCALARS.length; i < (node + 1) * SCALARS.length; i++) {
      this.#scalarFree[i] = Math.min(a.scalarFree[i]!, b.scalarFree[i]!);
    }
    this.changes.push(node);
  }

  /** Takes one task's amounts; the caller has checked that they fit. */
  take(node: number, shape: RequestShape, devices: readonly number[]): void {
    this.#move(node, shape, devices, -1);
  }

  /** Releases one task's amounts; a quarantined device stays unchanged. */
  release(node: number, shape: RequestShape, devices: readonly number[]): void {
    this.#move(node, shape, devices, 1);
  }

  /** Takes the requested cluster-wide resources, and returns them. */
  takeShared(wanted: SharedRequest | undefined): SharedAmounts | undefined {
    if (!wanted) return undefined;
    const taken = shareOf(this.shared, wanted);
    this.shared = addShared(this.shared, taken, -1);
    return taken;
  }

  releaseShared(held: SharedAmounts | undefined): void {
    this.shared = addShared(this.shared, held, 1);
  }

  #move(node: number, shape: RequestShape, devices: readonly number[], sign: number): void {
    for (const device of devices) {
      if (!this.nodes[node]!.devices[device]?.healthy) continue;
      this.#gpuFree[node * this.#stride + device]! += sign * shape.milli;
    }
    const base = node * SCALARS.length;
    for (let column = 0; column < SCALARS.length; column++) {
      this.#scalarFree[base + column]! += sign * shape.scalars[column]!;
    }
    this.changes.push(node);
  }

  scalarsFit(node: number, shape: RequestShape): boolean {
    const base = node * SCALARS.length;
    for (let column = 0; column < SCALARS.length; column++) {
      const wanted = shape.scalars[column]!;
      if (wanted > 0 && this.#scalarFree[base + column]! < wanted) return false;
    }
    return true;
  }

  /** Whether one task of an eligible shape fits on the node now. */
  fits(node: number, shape: RequestShape): boolean {
    if (!this.scalarsFit(node, shape)) return false;
    if (shape.devices === 0) return true;
    const base = node * this.#stride;
    if (shape.onlyDevice >= 0) return this.#gpuFree[base + shape.onlyDevice]! >= shape.milli;
    const end = base + this.#deviceCount[node]!;
    let wanted = shape.devices;
    for (let i = base; i < end; i++) {
      if (this.#gpuFree[i]! >= shape.milli && --wanted === 0) return true;
    }
    return false;
  }

  /** The number of tasks of an eligible shape that fit on the node now, at most `enough`. */
  copies(node: number, shape: RequestShape, enough: number): number {
    let count = enough;
    const base = node * SCALARS.length;
    for (let column = 0; column < SCALARS.length; column++) {
      const wanted = shape.scalars[column]!;
      if (wanted > 0)
        count = Math.min(count, Math.floor(this.#scalarFree[base + column]! / wanted));
    }
    if (count <= 0) return 0;
    if (shape.devices === 0) return count;
    return Math.min(count, this.deviceCopies(node, shape));
  }

  /** The number of a gang's tasks, of a shape with devices, for which the node's devices suffice now. */
  deviceCopies(node: number, shape: RequestShape): number {
    const base = node * this.#stride;
    if (shape.onlyDevice >= 0) {
      return this.#gpuFree[base + shape.onlyDevice]! >= shape.milli ? 1 : 0;
    }
    let slots = 0;
    for (let d = 0; d < this.#deviceCount[node]!; d++) {
      slots += Math.floor(this.#gpuFree[base + d]! / shape.milli);
    }
    const tasks = Math.floor(slots / shape.devices);
    return shape.onePerNode ? Math.min(1, tasks) : tasks;
  }

  /** What is free on one node: thousandths by device, then the scalars. */
  rowOf(node: number): number[] {
    const gpus = node * this.#stride;
    const scalars = node * SCALARS.length;
    return [
      ...this.#gpuFree.subarray(gpus, gpus + this.#deviceCount[node]!),
      ...this.#scalarFree.subarray(scalars, scalars + SCALARS.length),
    ];
  }

  /** Thousandths of GPU free on an eligible node that the shape may take. */
  gpuFreeFor(node: number, { onlyDevice }: RequestShape): number {
    if (onlyDevice < 0) return this.gpuFreeMilli(node);
    return this.#gpuFree[node * this.#stride + onlyDevice]!;
  }

  /** Thousandths of GPU free on the node, over all devices. */
  gpuFreeMilli(node: number): number {
    let total = 0;
    const base = node * this.#stride;
    for (let d = 0; d < this.#deviceCount[node]!; d++) total += this.#gpuFree[base + d]!;
    return total;
  }
}

/** The tasks of a placement that are on nodes still in the roster. */
export function* locate(
  placements: readonly TaskPlacement[],
  roster: Roster,
): Generator<{ readonly node: number; readonly devices: readonly number[] }> {
  for (const { nodeId, devices } of placements) {
    const node = roster.position(nodeId);
    if (node !== undefined) yield { node, devices };
  }
}
