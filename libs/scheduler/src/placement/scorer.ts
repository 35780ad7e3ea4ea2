import { type Ledger, MAX_DEVICES } from "../cluster/ledger.ts";
import type { RequestShape } from "../cluster/shape.ts";
import { CPU, SCALARS, WHOLE_DEVICE_MILLI } from "../cluster/units.ts";
import type { Strategy } from "../model.ts";
import type { Stranding } from "./stranding.ts";

/** Score steps per GPU: fine enough that ties are between nodes in the same state. */
const STEPS_PER_GPU = 1e6;

/** More than any score by a strategy: a rank decides before it. */
const STEPS_PER_RANK = 1e10;

/** Best fit's weight relative to stranded GPUs: it decides if stranding is equal. */
const BEST_FIT_WEIGHT = 0.03;

/** The score of a node for one task, and the devices that it would take. Higher is better. */
interface Choice {
  /** An integer, so that equality does not depend on how it was computed. */
  score: number;
  /** The device of a share; -1 for whole devices, which are interchangeable. */
  device: number;
}

/**
 * Scores one node for one task under one strategy. Only free amounts and the node's hardware count,
 * never its name or position.
 */
export class Scorer {
  readonly strategy: Strategy;
  readonly #ledger: Ledger;
  readonly #stranding: Stranding;
  readonly #widestCpuMilli: number;
  readonly #widestGpuMilli: number;
  /** The devices taken for an evaluation; reused, like the choice, for every node and task. */
  readonly #examined = new Uint8Array(MAX_DEVICES);
  readonly #choice: Choice = { score: 0, device: -1 };

  constructor(strategy: Strategy, ledger: Ledger, stranding: Stranding) {
    this.strategy = strategy;
    this.#ledger = ledger;
    this.#stranding = stranding;
    this.#widestGpuMilli = ledger.roster.widestDevices * WHOLE_DEVICE_MILLI;
    this.#widestCpuMilli = ledger.roster.widestCpuMilli;
  }

  /** The choice for a node that fits; valid until the next call. */
  choose(node: number, shape: RequestShape): Choice {
    const choice = this.#byStrategy(node, shape);
    const rank = shape.ranks?.get(this.#ledger.nodes[node]!.id);
    if (rank !== undefined) choice.score += rank * STEPS_PER_RANK;
    return choice;
  }

  #byStrategy(node: number, shape: RequestShape): Choice {
    const choice = this.#choice;
    choice.device = -1;
    if (this.strategy === "fragmentation") {
      this.#leastStranding(node, shape);
      return choice;
    }
    const left = this.#leftOver(node, shape);
    choice.score = Math.floor(STEPS_PER_GPU * (this.strategy === "binpack" ? -left : left));
    if (isShare(shape)) choice.device = this.#deviceByFit(node, shape);
    return choice;
  }

  /** The number of target groups times devices that a score evaluates. */
  costOf(node: number, shape: RequestShape): number {
    if (this.strategy !== "fragmentation") return 0;
    const devices = this.#ledger.deviceCount[node]!;
    return this.#stranding.groupCount * devices * (isShare(shape) ? devices + 1 : 2);
  }

  /** The devices that one task takes on a node that fits. */
  devices(node: number, shape: RequestShape): number[] {
    if (shape.devices === 0) return [];
    if (isShare(shape)) return [this.choose(node, shape).device];
    if (shape.onlyDevice >= 0) return [shape.onlyDevice];
    const { gpuFree, stride } = this.#ledger;
    const taken: number[] = [];
    for (let d = 0; taken.length < shape.devices; d++) {
      if (gpuFree[node * stride + d] === WHOLE_DEVICE_MILLI) taken.push(d);
    }
    return taken;
  }

  /**
   * The free share of the node after the task, in 0..1: half CPU, half GPU, relative to the largest
   * node.
   */
  #leftOver(node: number, shape: RequestShape): number {
    const ledger = this.#ledger;
    const cpu = ledger.scalarFree[node * SCALARS.length + CPU]! - shape.scalars[CPU]!;
    const gpu = ledger.gpuFreeMilli(node) - shape.devices * shape.milli;
    return 0.5 * (cpu / this.#widestCpuMilli) + 0.5 * (gpu / this.#widestGpuMilli);
  }

  /** Binpack fills the fullest device that fits, spread the emptiest. */
  #deviceByFit(node: number, shape: RequestShape): number {
    const { gpuFree, stride, deviceCount } = this.#ledger;
    const sign = this.strategy === "spread" ? -1 : 1;
    let best = -1;
    let bestFree = Number.POSITIVE_INFINITY;
    for (let d = 0; d < deviceCount[node]!; d++) {
      const free = gpuFree[node * stride + d]!;
      if (free >= shape.milli && sign * free < bestFree) {
        best = d;
        bestFree = sign * free;
      }
    }
    return best;
  }

  /** The GPUs newly stranded by the task, plus best fit: lower is better. */
  #leastStranding(node: number, shape: RequestShape): void {
    const before = this.#strandedNow(node, 0);
    const fit = BEST_FIT_WEIGHT * this.#leftOver(node, shape);
    if (isShare(shape)) this.#bestDevice(node, shape, before - fit);
    else this.#choice.score = toSteps(before - fit - this.#afterWhole(node, shape));
  }

  #bestDevice(node: number, shape: RequestShape, gain: number): void {
    const { gpuFree, stride, deviceCount } = this.#ledger;
    const choice = this.#choice;
    const base = node * stride;
    choice.score = Number.NEGATIVE_INFINITY;
    let chosenFree = 0;
    for (let d = 0; d < deviceCount[node]!; d++) {
      const free = gpuFree[base + d]!;
      if (free < shape.milli || (d > 0 && free === gpuFree[base + d - 1])) continue;
      gpuFree[base + d] = free - shape.milli;
      const score = toSteps(gain - this.#strandedNow(node, shape.scalars[CPU]!));
      gpuFree[base + d] = free;
      if (score < choice.score || (score === choice.score && free >= chosenFree)) continue;
      choice.score = score;
      choice.device = d;
      chosenFree = free;
    }
  }

  /**
   * Takes the devices in place, evaluates, and releases them: a copy for each score would cost
   * more.
   */
  #afterWhole(node: number, shape: RequestShape): number {
    const { gpuFree, stride } = this.#ledger;
    const base = node * stride;
    const examined = this.#examined;
    let taken = 0;
    for (let d = Math.max(0, shape.onlyDevice); taken < shape.devices; d++) {
      if (gpuFree[base + d] !== WHOLE_DEVICE_MILLI) continue;
      gpuFree[base + d] = 0;
      examined[taken++] = d;
    }
    const stranded = this.#strandedNow(node, shape.scalars[CPU]!);
    for (let at = 0; at < taken; at++) gpuFree[base + examined[at]!] = WHOLE_DEVICE_MILLI;
    return stranded;
  }

  #strandedNow(node: number, cpuTakenMilli: number): number {
    const { nodes, gpuFree, stride, deviceCount, scalarFree } = this.#ledger;
    const cpuLeft = scalarFree[node * SCALARS.length + CPU]! - cpuTakenMilli;
    return this.#stranding.gpus(
      nodes[node]!.gpuType,
      gpuFree,
      node * stride,
      deviceCount[node]!,
      cpuLeft,
    );
  }
}

function toSteps(gpus: number): number {
  return Math.floor(STEPS_PER_GPU * gpus);
}

function isShare(shape: RequestShape): boolean {
  return shape.devices === 1 && shape.milli < WHOLE_DEVICE_MILLI;
}
