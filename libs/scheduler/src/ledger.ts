import { ChangeLog } from "./change-log.ts";
import type { NodeSnapshot, SharedAmounts, TaskPlacement } from "./model.ts";
import type { Shape } from "./shape.ts";
import { addShared, lesserShared, NOTHING_SHARED } from "./shared-amounts.ts";
import { offered, SCALARS, WHOLE_DEVICE_MILLI } from "./units.ts";

/** Devices a node may have: sets of them are kept in the bits of one integer. */
const MAX_DEVICES = 31;

/**
 * What is free on every node, in typed arrays indexed by the node's position in the snapshot.
 * Node names are kept aside and never read by a decision.
 *
 * Invariants: all amounts are integers, so counting copies is exact; 0 <= gpuFree <= 1000 for each device; a scalar may be negative only where the
 * snapshot itself was over capacity (a node that shrank), and then nothing fits there.
 */
export class Ledger {
  readonly nodes: readonly NodeSnapshot[];
  /** Nodes changed lately: what an index must look at again. */
  readonly changes: ChangeLog;
  /** Columns a node in `gpuFree`; the widest node's device count. */
  readonly stride: number;
  /** Thousandths free, by node * stride + device. */
  readonly gpuFree: Int32Array;
  readonly deviceCount: Uint8Array;
  /** By node * SCALARS.length + column. */
  readonly scalarFree: Float64Array;
  /** What is free of that which belongs to no node. */
  shared: SharedAmounts = NOTHING_SHARED;

  private constructor(
    nodes: readonly NodeSnapshot[],
    stride: number,
    gpuFree: Int32Array,
    deviceCount: Uint8Array,
    scalarFree: Float64Array,
  ) {
    this.nodes = nodes;
    this.changes = new ChangeLog(nodes.length);
    this.stride = stride;
    this.gpuFree = gpuFree;
    this.deviceCount = deviceCount;
    this.scalarFree = scalarFree;
  }

  /** The empty cluster: what each node offers under the overcommit ratio, sick devices at 0. */
  static ofCapacity(nodes: readonly NodeSnapshot[], overcommitRatio: number): Ledger {
    const stride = nodes.reduce((widest, node) => Math.max(widest, node.devices.length), 1);
    if (stride > MAX_DEVICES)
      throw new RangeError(`a node has ${stride} GPUs, over ${MAX_DEVICES}`);
    const ledger = new Ledger(
      nodes,
      stride,
      new Int32Array(nodes.length * stride),
      new Uint8Array(nodes.length),
      new Float64Array(nodes.length * SCALARS.length),
    );
    nodes.forEach((node, n) => {
      ledger.deviceCount[n] = node.devices.length;
      node.devices.forEach((device, d) => {
        ledger.gpuFree[n * stride + d] = device.healthy ? WHOLE_DEVICE_MILLI : 0;
      });
      SCALARS.forEach((name, column) => {
        ledger.scalarFree[n * SCALARS.length + column] = offered(node, name, overcommitRatio);
      });
    });
    return ledger;
  }

  clone(): Ledger {
    const { nodes, stride, gpuFree, deviceCount, scalarFree } = this;
    const copy = new Ledger(nodes, stride, gpuFree.slice(), deviceCount, scalarFree.slice());
    copy.shared = this.shared;
    return copy;
  }

  /** What is free in both: a task placed here fits in either. */
  static lesser(a: Ledger, b: Ledger): Ledger {
    const both = a.clone();
    for (let node = 0; node < a.nodes.length; node++) both.setLesser(node, a, b);
    both.shared = lesserShared(a.shared, b.shared);
    return both;
  }

  /** Sets one node to what is free in both. */
  setLesser(node: number, a: Ledger, b: Ledger): void {
    for (let i = node * this.stride; i < (node + 1) * this.stride; i++) {
      this.gpuFree[i] = Math.min(a.gpuFree[i]!, b.gpuFree[i]!);
    }
    for (let i = node * SCALARS.length; i < (node + 1) * SCALARS.length; i++) {
      this.scalarFree[i] = Math.min(a.scalarFree[i]!, b.scalarFree[i]!);
    }
    this.changes.push(node);
  }

  /** Takes one task's amounts; the caller has checked that they fit. */
  take(node: number, shape: Shape, devices: readonly number[]): void {
    this.#move(node, shape, devices, -1);
  }

  /** Gives one task's amounts back; a sick device stays at what it was. */
  release(node: number, shape: Shape, devices: readonly number[]): void {
    this.#move(node, shape, devices, 1);
  }

  takeShared(amounts: SharedAmounts | undefined): void {
    this.shared = addShared(this.shared, amounts, -1);
  }

  releaseShared(amounts: SharedAmounts | undefined): void {
    this.shared = addShared(this.shared, amounts, 1);
  }

  #move(node: number, shape: Shape, devices: readonly number[], sign: number): void {
    for (const device of devices) {
      if (!this.nodes[node]!.devices[device]?.healthy) continue;
      this.gpuFree[node * this.stride + device]! += sign * shape.milli;
    }
    const base = node * SCALARS.length;
    for (let column = 0; column < SCALARS.length; column++) {
      this.scalarFree[base + column]! += sign * shape.scalars[column]!;
    }
    this.changes.push(node);
  }

  scalarsFit(node: number, shape: Shape): boolean {
    const base = node * SCALARS.length;
    for (let column = 0; column < SCALARS.length; column++) {
      const wanted = shape.scalars[column]!;
      if (wanted > 0 && this.scalarFree[base + column]! < wanted) return false;
    }
    return true;
  }

  /** Whether one task of an eligible shape fits on the node now. */
  fits(node: number, shape: Shape): boolean {
    if (!this.scalarsFit(node, shape)) return false;
    if (shape.devices === 0) return true;
    const base = node * this.stride;
    if (shape.onlyDevice >= 0) return this.gpuFree[base + shape.onlyDevice]! >= shape.milli;
    const end = base + this.deviceCount[node]!;
    let wanted = shape.devices;
    for (let i = base; i < end; i++) {
      if (this.gpuFree[i]! >= shape.milli && --wanted === 0) return true;
    }
    return false;
  }

  /** How many tasks of an eligible shape fit on the node now, at most `enough`. */
  copies(node: number, shape: Shape, enough: number): number {
    let count = enough;
    const base = node * SCALARS.length;
    for (let column = 0; column < SCALARS.length; column++) {
      const wanted = shape.scalars[column]!;
      if (wanted > 0) count = Math.min(count, Math.floor(this.scalarFree[base + column]! / wanted));
    }
    if (count <= 0) return 0;
    if (shape.devices === 0) return count;
    return Math.min(count, this.#deviceCopies(node, shape));
  }

  #deviceCopies(node: number, shape: Shape): number {
    const base = node * this.stride;
    if (shape.onlyDevice >= 0) {
      return this.gpuFree[base + shape.onlyDevice]! >= shape.milli ? 1 : 0;
    }
    let slots = 0;
    for (let d = 0; d < this.deviceCount[node]!; d++) {
      slots += Math.floor(this.gpuFree[base + d]! / shape.milli);
    }
    return Math.floor(slots / shape.devices);
  }

  /** Thousandths of GPU free on an eligible node that the shape may take. */
  gpuFreeFor(node: number, { onlyDevice }: Shape): number {
    if (onlyDevice < 0) return this.gpuFreeMilli(node);
    return this.gpuFree[node * this.stride + onlyDevice]!;
  }

  /** Thousandths of GPU free on the node, over all devices. */
  gpuFreeMilli(node: number): number {
    let total = 0;
    const base = node * this.stride;
    for (let d = 0; d < this.deviceCount[node]!; d++) total += this.gpuFree[base + d]!;
    return total;
  }
}

/** By node id, its position in the snapshot. */
export function nodePositions(nodes: readonly NodeSnapshot[]): ReadonlyMap<string, number> {
  return new Map(nodes.map((node, position) => [node.id, position]));
}

/** The tasks of a placement that are on nodes still in the snapshot. */
export function* locate(
  placements: readonly TaskPlacement[],
  positions: ReadonlyMap<string, number>,
): Generator<{ readonly node: number; readonly devices: readonly number[] }> {
  for (const { nodeId, devices } of placements) {
    const node = positions.get(nodeId);
    if (node !== undefined) yield { node, devices };
  }
}
