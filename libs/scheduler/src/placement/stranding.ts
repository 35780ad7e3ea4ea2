import type { TargetGroup, TargetMix } from "./targets.ts";

/**
 * The free GPUs of a node that the expected workload could not use: what the fragmentation strategy
 * minimizes. It is the sum of two terms.
 *
 * - Fragmentation (FGD: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4). Over
 *   the mix it is the free GPU on devices too full for the next task, or all if the node cannot
 *   host that task.
 * - CPU starvation, our own term: FGD looks one task ahead and detects a lack of CPU only when it
 *   exists. A node with F free GPUs and C free cores can fill C / r of them, r being the CPU per
 *   GPU that tasks need. The term is a soft max(0, F - C / r), which grows before the node is
 *   stuck.
 */
export class Stranding {
  readonly #groups: readonly TargetGroup[];
  /** Keyed by gpu type, then group: whether the group may use that type. */
  readonly #usable = new Map<string, readonly boolean[]>();
  readonly #cpuPerGpu: number;

  constructor(mix: TargetMix) {
    this.#groups = mix.groups;
    this.#cpuPerGpu = mix.cpuPerGpu * CPU_HEADROOM;
  }

  get groupCount(): number {
    return this.#groups.length;
  }

  /** GPUs lost on a node of this type with these thousandths free on `count` devices from `base`. */
  gpus(
    gpuType: string,
    free: Int32Array,
    base: number,
    count: number,
    cpuFreeMilli: number,
  ): number {
    let total = 0;
    for (let d = 0; d < count; d++) total += free[base + d]!;
    if (total === 0) return 0;
    const usable = this.#usable.get(gpuType) ?? this.#learn(gpuType);
    let lost = 0;
    for (let g = 0; g < this.#groups.length; g++) {
      const group = this.#groups[g]!;
      lost += usable[g]
        ? fragmented(group, free, base, count, total, cpuFreeMilli)
        : group.probability * total;
    }
    return lost / 1000 + this.#starved(total, cpuFreeMilli);
  }

  /** The types are those of nodes, which are few. */
  #learn(gpuType: string): readonly boolean[] {
    const usable = this.#groups.map((group) => accepts(group, gpuType));
    this.#usable.set(gpuType, usable);
    return usable;
  }

  #starved(totalMilli: number, cpuFreeMilli: number): number {
    if (this.#cpuPerGpu === 0) return 0;
    const excess = (totalMilli - cpuFreeMilli / this.#cpuPerGpu) / 1000;
    return excess > LINEAR_FROM ? excess : Math.log1p(Math.exp(excess));
  }
}

/**
 * CPU per GPU to keep, relative to the GPU tasks' mean: tasks without a GPU use the same cores.
 * Tuned on the openb traces, where 1.3 to 1.5 works (docs/benchmarks.md).
 */
const CPU_HEADROOM = 1.4;

/** Above this log(1 + e^x) is x to double precision. */
const LINEAR_FROM = 36;

/** A task without a GPU uses none, so every free GPU is lost to it. */
function accepts(group: TargetGroup, gpuType: string): boolean {
  return group.milli > 0 && (group.gpuTypes.length === 0 || group.gpuTypes.includes(gpuType));
}

/** Expected thousandths lost to one group, times its probability. */
function fragmented(
  group: TargetGroup,
  free: Int32Array,
  base: number,
  count: number,
  total: number,
  cpuFreeMilli: number,
): number {
  const { milli, probability } = group;
  let hosts = 0;
  let below = 0;
  for (let i = base; i < base + count; i++) {
    const left = free[i]!;
    if (left >= milli) hosts++;
    else below += left;
  }
  if (hosts < group.gpus) return probability * total;
  const enoughCpu = shareWithin(group, cpuFreeMilli);
  return enoughCpu * below + (probability - enoughCpu) * total;
}

/** Probability of a target in the group whose CPU request fits, by binary search. */
function shareWithin({ cpuMilli, cumulative }: TargetGroup, cpuFreeMilli: number): number {
  let low = 0;
  let high = cpuMilli.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cpuMilli[middle]! <= cpuFreeMilli) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? 0 : cumulative[low - 1]!;
}
