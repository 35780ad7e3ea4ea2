import { isShare, type NodeState, type ScoreFunction, withoutIdle } from "./baseline-cluster.ts";
import type { TracePod } from "./trace.ts";

/** Typical pods cover this share of the trace, as in the paper's artefact. */
const COVERED_SHARE = 0.95;

interface TypicalPod {
  readonly pod: TracePod;
  readonly frequency: number;
}

/**
 * FGD's score, as its artefact has it: 100 times the sigmoid of the fragmentation that the pod
 * takes away, in GPUs, cut to an integer. (Weng et al., "Beware of Fragmentation: Scheduling
 * GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023.)
 */
export function fgdScore(pods: readonly TracePod[]): ScoreFunction {
  const typical = typicalPods(pods);
  return (node, pod) => {
    const before = fragmentation(typical, node, node.gpuMilli, node.cpuMilli);
    const cpuLeft = node.cpuMilli - pod.cpuMilli;
    const score = (gpuMilli: readonly number[]): number => {
      const gain = (before - fragmentation(typical, node, gpuMilli, cpuLeft)) / 1000;
      return Math.trunc(100 / (1 + Math.exp(-gain)));
    };
    if (!isShare(pod)) return { score: score(withoutIdle(node.gpuMilli, pod.gpus)), device: -1 };
    let best = { score: -1, device: -1 };
    node.gpuMilli.forEach((free, device) => {
      if (free < pod.gpuMilli) return;
      const after = score(node.gpuMilli.with(device, free - pod.gpuMilli));
      if (after > best.score) best = { score: after, device };
    });
    return best;
  };
}

/** The most frequent kinds of pod that together make up 95 % of the trace, regardless of memory. */
export function typicalPods(pods: readonly TracePod[]): TypicalPod[] {
  const kinds = Map.groupBy(pods, ({ cpuMilli, gpus, gpuMilli, models }) =>
    JSON.stringify([cpuMilli, gpus, gpuMilli, models]),
  );
  const commonestFirst = [...kinds.values()].sort((kindA, kindB) => {
    const [a, b] = [kindA[0]!, kindB[0]!];
    const byRequest = b.cpuMilli - a.cpuMilli || b.gpuMilli - a.gpuMilli || b.gpus - a.gpus;
    return kindB.length - kindA.length || byRequest;
  });
  const typical: { pod: TracePod; count: number }[] = [];
  let covered = 0;
  for (const kind of commonestFirst) {
    if (covered >= COVERED_SHARE * pods.length) break;
    covered += kind.length;
    typical.push({ pod: kind[0]!, count: kind.length });
  }
  return typical.map(({ pod, count }) => ({ pod, frequency: count / covered }));
}

/** Expected thousandths of free GPU that a typical pod could not use. */
export function fragmentation(
  typical: readonly TypicalPod[],
  { model }: Pick<NodeState, "model">,
  gpuMilli: readonly number[],
  cpuMilli: number,
): number {
  let total = 0;
  for (const free of gpuMilli) total += free;
  if (total === 0) return 0;
  let lost = 0;
  for (const { pod, frequency } of typical) {
    lost += frequency * lostTo(pod, model, gpuMilli, cpuMilli, total);
  }
  return lost;
}

/** All that is free where the pod cannot run, else what is free on devices too full for it. */
function lostTo(
  pod: TracePod,
  model: string,
  gpuMilli: readonly number[],
  cpuMilli: number,
  total: number,
): number {
  if (pod.gpus === 0 || cpuMilli < pod.cpuMilli) return total;
  if (pod.models.length > 0 && !pod.models.includes(model)) return total;
  let hosts = 0;
  let below = 0;
  for (const free of gpuMilli) {
    if (free >= pod.gpuMilli) hosts++;
    else below += free;
  }
  return hosts < pod.gpus ? total : below;
}
