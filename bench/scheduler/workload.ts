import type { Random } from "@heddle/base/random";
import type { TraceNode, TracePod } from "./trace.ts";

/** Requested GPUs over the cluster's, as in the FGD paper's evaluation. */
const LOAD = 1.3;

/**
 * The pods of one run: all of the trace's, shuffled. They are taken away until they ask for at most
 * 1.3 times the cluster's GPUs, then drawn with replacement until the next would exceed that.
 */
export function drawWorkload(
  pods: readonly TracePod[],
  nodes: readonly TraceNode[],
  random: Random,
): TracePod[] {
  const drawn = shuffled(pods, random);
  const targetMilli = LOAD * 1000 * nodes.reduce((sum, { gpus }) => sum + gpus, 0);
  let requestedMilli = drawn.reduce((sum, pod) => sum + requestedGpuMilli(pod), 0);
  if (requestedMilli === 0) throw new Error("the trace asks for no GPU");
  while (requestedMilli > targetMilli) {
    const [removed] = drawn.splice(Math.floor(random() * drawn.length), 1);
    requestedMilli -= requestedGpuMilli(removed!);
  }
  for (;;) {
    const pod = pods[Math.floor(random() * pods.length)]!;
    if (requestedMilli + pod.gpuMilli > targetMilli) return drawn;
    requestedMilli += requestedGpuMilli(pod);
    drawn.push(pod);
  }
}

/** Thousandths of GPU that the pod asks for, over its devices. */
export function requestedGpuMilli({ gpus, gpuMilli }: TracePod): number {
  return gpus * gpuMilli;
}

/** A copy in random order (Fisher-Yates). */
export function shuffled<T>(items: readonly T[], random: Random): T[] {
  const copy = [...items];
  for (let i = copy.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [copy[i], copy[j]] = [copy[j]!, copy[i]!];
  }
  return copy;
}
