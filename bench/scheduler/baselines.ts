import type { Random } from "@heddle/base/random";
import {
  bind,
  emptyNodes,
  fits,
  isShare,
  type NodeState,
  type Scored,
  type ScoreFunction,
  tightestDevice,
  totalGpuMilli,
} from "./baseline-cluster.ts";
import { fgdScore } from "./fgd.ts";
import type { Policy } from "./policy.ts";
import type { TraceNode, TracePod } from "./trace.ts";
import { shuffled } from "./workload.ts";

/** The widest node of the openb cluster, which the paper's artefact normalises by. */
const WIDEST_CPU_MILLI = 128_000;
const WIDEST_GPU_MILLI = 8_000;

/** Places each pod on a random node that fits, a share on a random device that fits. */
export function randomPolicy(nodes: readonly TraceNode[], random: Random): Policy {
  const states = emptyNodes(nodes);
  const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!;
  return {
    place(pod) {
      const candidates = states.filter((node) => fits(node, pod));
      if (candidates.length === 0) return false;
      const node = pick(candidates);
      const devices = [...node.gpuMilli.keys()].filter((d) => node.gpuMilli[d]! >= pod.gpuMilli);
      bind(node, pod, isShare(pod) ? pick(devices) : -1);
      return true;
    },
  };
}

/** Tetris' dot product (Grandl et al., SIGCOMM 2014) as in the artefact: the smaller the better. */
export function dotProductPolicy(nodes: readonly TraceNode[], random: Random): Policy {
  return new ScoredPolicy(nodes, random, (node, pod) => {
    const cpu = (node.cpuMilli / WIDEST_CPU_MILLI) * (pod.cpuMilli / WIDEST_CPU_MILLI);
    const asked = pod.gpus * pod.gpuMilli;
    const gpu = (totalGpuMilli(node) / WIDEST_GPU_MILLI) * (asked / WIDEST_GPU_MILLI);
    return scored(Math.trunc(100 * (1 - (cpu + gpu) / 2)), node, pod);
  });
}

/** Best fit over CPU and GPU, half each, in the artefact's 0..100 steps. */
export function bestFitPolicy(nodes: readonly TraceNode[], random: Random): Policy {
  return new ScoredPolicy(nodes, random, (node, pod) => {
    const cpu = (node.cpuMilli - pod.cpuMilli) / WIDEST_CPU_MILLI;
    const gpu = (totalGpuMilli(node) - pod.gpus * pod.gpuMilli) / WIDEST_GPU_MILLI;
    return scored(Math.trunc(100 * (1 - 0.5 * cpu - 0.5 * gpu)), node, pod);
  });
}

/** Fragmentation gradient descent over the trace's typical pods. */
export function fgdPolicy(
  nodes: readonly TraceNode[],
  random: Random,
  pods: readonly TracePod[],
): Policy {
  return new ScoredPolicy(nodes, random, fgdScore(pods));
}

function scored(score: number, node: NodeState, pod: TracePod): Scored {
  return { score, device: tightestDevice(node, pod) };
}

/**
 * Scores every node that fits and takes the best; scores are cached per kind of pod and recomputed
 * only for changed nodes. Equal scores go to the lowest name, and names carry a random prefix, as
 * in the artefact: one random order holds for the whole run.
 */
class ScoredPolicy implements Policy {
  /** In the order of the prefixed names. */
  readonly #nodes: NodeState[];
  readonly #score: ScoreFunction;
  readonly #changes: number[] = [];
  readonly #kinds = new Map<number, { readonly scores: (Scored | undefined)[]; seen: number }>();

  constructor(nodes: readonly TraceNode[], random: Random, score: ScoreFunction) {
    this.#nodes = emptyNodes(shuffled(nodes, random));
    this.#score = score;
  }

  place(pod: TracePod): boolean {
    const scores = this.#scoresOf(pod);
    let best = -1;
    for (let node = 0; node < scores.length; node++) {
      const candidate = scores[node];
      if (candidate && (best === -1 || candidate.score > scores[best]!.score)) best = node;
    }
    if (best === -1) return false;
    bind(this.#nodes[best]!, pod, scores[best]!.device);
    this.#changes.push(best);
    return true;
  }

  #scoresOf(pod: TracePod): readonly (Scored | undefined)[] {
    const scoreOf = (node: NodeState): Scored | undefined =>
      fits(node, pod) ? this.#score(node, pod) : undefined;
    let kind = this.#kinds.get(pod.kind);
    if (!kind) {
      kind = { scores: this.#nodes.map(scoreOf), seen: this.#changes.length };
      this.#kinds.set(pod.kind, kind);
    }
    const stale = new Set(this.#changes.slice(kind.seen));
    for (const node of stale) kind.scores[node] = scoreOf(this.#nodes[node]!);
    kind.seen = this.#changes.length;
    return kind.scores;
  }
}
