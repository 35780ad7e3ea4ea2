import { type Random, seededRandom } from "@heddle/base/random";
import { bestFitPolicy, dotProductPolicy, fgdPolicy, randomPolicy } from "./baselines.ts";
import { heddlePolicy } from "./heddle-policy.ts";
import type { Policy } from "./policy.ts";
import type { Trace, TraceNode, TracePod } from "./trace.ts";
import { drawWorkload, requestedGpuMilli } from "./workload.ts";

type PolicyFactory = (
  nodes: readonly TraceNode[],
  random: Random,
  pods: readonly TracePod[],
) => Policy;

/** The policies compared, by the name in the report. */
export const POLICIES = {
  random: randomPolicy,
  dotprod: dotProductPolicy,
  bestfit: bestFitPolicy,
  fgd: fgdPolicy,
  heddle: (nodes, _random, pods) => heddlePolicy(nodes, pods),
} as const satisfies Record<string, PolicyFactory>;

export type PolicyName = keyof typeof POLICIES;

/** GPU allocation over the seeds, in percent of the cluster's GPUs. */
export interface Allocation {
  readonly mean: number;
  /** Sample standard deviation; 0 for one seed. */
  readonly std: number;
  /** How many seeds were run. */
  readonly seeds: number;
}

/** The first seed, as in the paper's artefact; run i uses this plus i. */
const FIRST_SEED = 42;

/** One policy on one trace, once a seed. */
export function measureAllocation(
  name: PolicyName,
  nodes: readonly TraceNode[],
  { pods }: Trace,
  seeds: number,
): Allocation {
  const percents = Array.from({ length: seeds }, (_, run) => {
    const random = seededRandom(FIRST_SEED + run);
    const workload = drawWorkload(pods, nodes, random);
    return allocatedPercent(POLICIES[name](nodes, random, pods), nodes, workload);
  });
  return summary(percents);
}

/** Offers the pods in order and returns the allocated share of the GPUs. */
export function allocatedPercent(
  policy: Policy,
  nodes: readonly TraceNode[],
  workload: readonly TracePod[],
): number {
  let takenMilli = 0;
  for (const pod of workload) {
    if (policy.place(pod)) takenMilli += requestedGpuMilli(pod);
  }
  return takenMilli / 10 / nodes.reduce((sum, { gpus }) => sum + gpus, 0);
}

function summary(values: readonly number[]): Allocation {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const std = values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0;
  return { mean, std, seeds: values.length };
}
