import type { DecayedUsage, JobTraits, NodeSnapshot, ProjectState } from "./model.ts";
import { gpuMilliOf } from "./shape.ts";

/** The resources that shares are taken of. */
interface ShareVector {
  readonly gpuMilli: number;
  readonly cpuMilli: number;
  readonly memoryMib: number;
}

/** What a job holds while it runs, over all its tasks. */
export function holdings({ tasks, request }: JobTraits): ShareVector {
  return {
    gpuMilli: tasks * gpuMilliOf(request),
    cpuMilli: tasks * request.scalars.cpuMilli,
    memoryMib: tasks * request.scalars.memoryMib,
  };
}

/** What the cluster has of each resource, sick devices and lost nodes left out. */
function clusterCapacity(nodes: readonly NodeSnapshot[]): ShareVector {
  const capacity = { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };
  for (const node of nodes) {
    if (node.state === "lost") continue;
    capacity.gpuMilli += 1000 * node.devices.filter(({ healthy }) => healthy).length;
    capacity.cpuMilli += node.capacity.cpuMilli;
    capacity.memoryMib += node.capacity.memoryMib;
  }
  return capacity;
}

/** Past use at `nowMs`: halved every half-life, plus what was held since `asOfMs`. */
export function decayedUsage(
  usage: DecayedUsage,
  held: ShareVector,
  nowMs: number,
  halfLifeMs: number,
): DecayedUsage {
  const elapsedMs = Math.max(0, nowMs - usage.asOfMs);
  const kept = 2 ** (-elapsedMs / halfLifeMs);
  // The integral of 2^(-t/h) over the time held, so that the result is the same however often it
  // is brought up to date.
  const accruedMs = ((1 - kept) * halfLifeMs) / Math.LN2;
  return {
    gpuMilliMs: usage.gpuMilliMs * kept + held.gpuMilli * accruedMs,
    cpuMilliMs: usage.cpuMilliMs * kept + held.cpuMilli * accruedMs,
    memoryMibMs: usage.memoryMibMs * kept + held.memoryMib * accruedMs,
    asOfMs: nowMs,
  };
}

/**
 * Dominant resource fairness (Ghodsi et al., NSDI 2011) with a memory: a project's share is the
 * largest, over GPU, CPU and memory, of what it holds now plus its decayed mean past hold, over the
 * cluster, divided by its weight. The project with the least share goes next.
 */
export class FairShare {
  readonly #capacity: ShareVector;
  readonly #accounts = new Map<string, { weight: number; past: ShareVector; held: ShareVector }>();
  readonly #shares = new Map<string, number>();

  constructor(
    nodes: readonly NodeSnapshot[],
    projects: readonly ProjectState[],
    nowMs: number,
    halfLifeMs: number,
  ) {
    this.#capacity = clusterCapacity(nodes);
    for (const { project, weight, usage } of projects) {
      const now = decayedUsage(usage, NOTHING, nowMs, halfLifeMs);
      this.#accounts.set(project, { weight, past: meanHold(now, halfLifeMs), held: NOTHING });
    }
  }

  /** The project's weighted dominant share; 0 for one that holds and held nothing. */
  share(project: string): number {
    let share = this.#shares.get(project);
    if (share === undefined) {
      share = this.#dominant(project);
      this.#shares.set(project, share);
    }
    return share;
  }

  /** Counts a job that runs or starts. */
  charge(job: JobTraits): void {
    const account = this.#accounts.get(job.project) ?? { weight: 1, past: NOTHING, held: NOTHING };
    const more = holdings(job);
    this.#accounts.set(job.project, {
      ...account,
      held: {
        gpuMilli: account.held.gpuMilli + more.gpuMilli,
        cpuMilli: account.held.cpuMilli + more.cpuMilli,
        memoryMib: account.held.memoryMib + more.memoryMib,
      },
    });
    this.#shares.delete(job.project);
  }

  #dominant(project: string): number {
    const account = this.#accounts.get(project);
    if (!account) return 0;
    const { past, held, weight } = account;
    const of = (name: keyof ShareVector): number =>
      this.#capacity[name] > 0 ? (past[name] + held[name]) / this.#capacity[name] : 0;
    return Math.max(of("gpuMilli"), of("cpuMilli"), of("memoryMib")) / weight;
  }
}

const NOTHING: ShareVector = { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };

/** The constant hold whose decayed integral over all the past would be this usage. */
function meanHold(usage: DecayedUsage, halfLifeMs: number): ShareVector {
  const perMs = Math.LN2 / halfLifeMs;
  return {
    gpuMilli: usage.gpuMilliMs * perMs,
    cpuMilli: usage.cpuMilliMs * perMs,
    memoryMib: usage.memoryMibMs * perMs,
  };
}
