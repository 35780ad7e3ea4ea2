import type { TaskRequest, WorkloadTarget } from "../model.ts";

/** The share of the workload that the targets must cover, as in the FGD paper's artefact. */
const COVERED_SHARE = 0.95;

/** The maximum number of kinds of task in a mix; rarer kinds add nothing to the score. */
const MAX_KINDS = 4096;

/** The maximum distance of the mix from the one that the scores used. */
const MAX_DRIFT = 0.05;

/** Targets that request the same devices: one step function of the CPU left on a node. */
export interface TargetGroup {
  readonly gpus: number;
  /** Thousandths per device; 0 for tasks without a GPU. */
  readonly milli: number;
  /** Accepted device types; empty accepts any. */
  readonly gpuTypes: readonly string[];
  /** Probability of the group in the mix. */
  readonly probability: number;
  /** Ascending CPU requests, in thousandths of a core. */
  readonly cpuMilli: readonly number[];
  /** Indexed by position in `cpuMilli`: the probability of a target in the group that requests no more. */
  readonly cumulative: readonly number[];
}

/** The expected workload in the form that the fragmentation score reads. */
export interface TargetMix {
  readonly groups: readonly TargetGroup[];
  /** CPU per GPU over the GPU tasks: thousandths of a core per thousandth of a device. */
  readonly cpuPerGpu: number;
}

/** Counts tasks by request: one target for each distinct (devices, share, types, CPU). */
export class TargetCounts {
  readonly #kinds = new Map<string, { readonly request: TaskRequest; count: number }>();
  readonly #keys = new WeakMap<TaskRequest, string>();

  /** A negative number of tasks removes them from the counts. */
  add(request: TaskRequest, tasks: number): void {
    const key = this.#keyOf(request);
    const kind = this.#kinds.get(key);
    if (!kind) this.#kinds.set(key, { request, count: tasks });
    else if (kind.count + tasks === 0) this.#kinds.delete(key);
    else kind.count += tasks;
  }

  /** These counts and the jobs' together. */
  with(jobs: Iterable<{ readonly request: TaskRequest; readonly tasks: number }>): TargetCounts {
    const both = new TargetCounts();
    for (const { request, count } of this.#kinds.values()) both.add(request, count);
    for (const { request, tasks } of jobs) both.add(request, tasks);
    return both;
  }

  targets(): WorkloadTarget[] {
    return [...this.#kinds.values()].map(({ request, count }) => ({
      gpus: request.gpus,
      gpuMilli: request.gpus > 0 ? request.gpuMilli : 0,
      gpuTypes: request.gpuTypes,
      cpuMilli: request.scalars.cpuMilli,
      weight: count,
    }));
  }

  #keyOf(request: TaskRequest): string {
    const known = this.#keys.get(request);
    if (known !== undefined) return known;
    const { gpus, gpuMilli, gpuTypes, scalars } = request;
    const key = `${gpus} ${gpus > 0 ? gpuMilli : 0} ${scalars.cpuMilli} ${gpuTypes.join("|")}`;
    this.#keys.set(request, key);
    return key;
  }
}

/** The targets of a list of jobs. */
export function countTargets(
  jobs: Iterable<{ readonly request: TaskRequest; readonly tasks: number }>,
): WorkloadTarget[] {
  return new TargetCounts().with(jobs).targets();
}

/**
 * The mix in use while the current one is nearly the same, else the current one. Every score
 * depends on the mix, so a mix that followed each job would cause a new score for every node. The
 * distance is the total variation.
 */
export function steadyTargets(
  inUse: readonly WorkloadTarget[],
  present: readonly WorkloadTarget[],
): readonly WorkloadTarget[] {
  if (inUse.length === 0 || present.length === 0) return present;
  const shares = new Map<string, number>();
  for (const [sign, targets] of [
    [1, inUse],
    [-1, present],
  ] as const) {
    const total = targets.reduce((sum, { weight }) => sum + weight, 0);
    for (const { gpus, gpuMilli, gpuTypes, cpuMilli, weight } of targets) {
      const key = `${gpus} ${gpuMilli} ${cpuMilli} ${gpuTypes.join("|")}`;
      shares.set(key, (shares.get(key) ?? 0) + (sign * weight) / total);
    }
  }
  let distance = 0;
  for (const difference of shares.values()) distance += Math.abs(difference) / 2;
  return distance <= MAX_DRIFT ? inUse : present;
}

/** The commonest targets that cover 95 % of the weight, grouped by requested devices. */
export function targetMix(targets: readonly WorkloadTarget[]): TargetMix {
  const common = commonest(targets);
  const total = common.reduce((sum, target) => sum + target.weight, 0);
  const byDevices = new Map<string, WorkloadTarget[]>();
  for (const target of common) {
    const key = `${target.gpus} ${target.gpuMilli} ${target.gpuTypes.join("|")}`;
    const group = byDevices.get(key);
    if (group) group.push(target);
    else byDevices.set(key, [target]);
  }
  return {
    groups: [...byDevices.values()].map((group) => targetGroup(group, total)),
    cpuPerGpu: cpuPerGpu(targets),
  };
}

function commonest(targets: readonly WorkloadTarget[]): WorkloadTarget[] {
  const wanted = COVERED_SHARE * targets.reduce((sum, target) => sum + target.weight, 0);
  const sorted = [...targets].sort(
    (a, b) =>
      b.weight - a.weight ||
      b.cpuMilli - a.cpuMilli ||
      b.gpuMilli - a.gpuMilli ||
      b.gpus - a.gpus ||
      (a.gpuTypes.join("|") < b.gpuTypes.join("|") ? 1 : -1),
  );
  let covered = 0;
  const end = sorted.findIndex((target) => {
    covered += target.weight;
    return covered >= wanted;
  });
  return sorted.slice(0, Math.min(end + 1, MAX_KINDS));
}

function targetGroup(group: readonly WorkloadTarget[], total: number): TargetGroup {
  const ascending = [...group].sort((a, b) => a.cpuMilli - b.cpuMilli);
  let sum = 0;
  const cumulative = ascending.map(({ weight }) => {
    sum += weight / total;
    return sum;
  });
  const { gpus, gpuMilli, gpuTypes } = ascending[0]!;
  return {
    gpus,
    milli: gpuMilli,
    gpuTypes,
    probability: sum,
    cpuMilli: ascending.map(({ cpuMilli }) => cpuMilli),
    cumulative,
  };
}

function cpuPerGpu(targets: readonly WorkloadTarget[]): number {
  let cpu = 0;
  let gpu = 0;
  for (const { gpus, gpuMilli, cpuMilli, weight } of targets) {
    if (gpus === 0) continue;
    cpu += cpuMilli * weight;
    gpu += gpus * gpuMilli * weight;
  }
  return gpu > 0 ? cpu / gpu : 0;
}
