import type { DecayedUsage, JobTraits, ProjectState } from "../model.ts";
import { gpuMilliOf } from "./units.ts";

/** The resources of a share. */
export interface ShareVector {
  readonly gpuMilli: number;
  readonly cpuMilli: number;
  readonly memoryMib: number;
}

export const NOTHING: ShareVector = { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };

/** The inputs of shares; projects are looked up lazily. */
export interface FairShareOptions {
  /** The capacity of the cluster. */
  readonly capacity: ShareVector;
  readonly projectOf: (project: string) => ProjectState | undefined;
  /** What the project's running jobs hold. */
  readonly heldBy: (project: string) => ShareVector;
  readonly nowMs: number;
  readonly halfLifeMs: number;
}

/** The resources that a job holds while it runs, over all its tasks. */
export function holdings({ tasks, request }: JobTraits): ShareVector {
  return {
    gpuMilli: tasks * gpuMilliOf(request),
    cpuMilli: tasks * request.scalars.cpuMilli,
    memoryMib: tasks * request.scalars.memoryMib,
  };
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
  // The integral of 2^(-t/h) over the time held, so the number of updates does not change the
  // result.
  const accruedMs = ((1 - kept) * halfLifeMs) / Math.LN2;
  return {
    gpuMilliMs: usage.gpuMilliMs * kept + held.gpuMilli * accruedMs,
    cpuMilliMs: usage.cpuMilliMs * kept + held.cpuMilli * accruedMs,
    memoryMibMs: usage.memoryMibMs * kept + held.memoryMib * accruedMs,
    asOfMs: nowMs,
  };
}

/**
 * Dominant resource fairness (Ghodsi et al., NSDI 2011) with decayed past use. The project with the
 * least share is next.
 *
 * - A share is the largest over GPU, CPU and memory, relative to the cluster, divided by the
 *   project's weight.
 * - It counts what the project holds now plus its decayed mean past hold.
 */
export class FairShare {
  readonly #options: FairShareOptions;
  readonly #accounts = new Map<string, { weight: number; past: ShareVector; held: ShareVector }>();
  readonly #shares = new Map<string, number>();

  constructor(options: FairShareOptions) {
    this.#options = options;
  }

  /** The project's weighted dominant share; 0 for one without current or past use. */
  share(project: string): number {
    let share = this.#shares.get(project);
    if (share === undefined) {
      share = this.#dominant(project);
      this.#shares.set(project, share);
    }
    return share;
  }

  /** Counts a job that starts. */
  charge(job: JobTraits): void {
    const account = this.#account(job.project);
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

  #account(name: string): { weight: number; past: ShareVector; held: ShareVector } {
    const known = this.#accounts.get(name);
    if (known) return known;
    const { projectOf, heldBy, nowMs, halfLifeMs } = this.#options;
    const project = projectOf(name);
    const now = project && decayedUsage(project.usage, NOTHING, nowMs, halfLifeMs);
    const past = now ? meanHold(now, halfLifeMs) : NOTHING;
    const account = { weight: project?.weight ?? 1, past, held: heldBy(name) };
    this.#accounts.set(name, account);
    return account;
  }

  #dominant(project: string): number {
    const { past, held, weight } = this.#account(project);
    const { capacity } = this.#options;
    const of = (name: keyof ShareVector): number =>
      capacity[name] > 0 ? (past[name] + held[name]) / capacity[name] : 0;
    return Math.max(of("gpuMilli"), of("cpuMilli"), of("memoryMib")) / weight;
  }
}

/** The constant hold whose decayed integral over all the past would equal this usage. */
function meanHold(usage: DecayedUsage, halfLifeMs: number): ShareVector {
  const perMs = Math.LN2 / halfLifeMs;
  return {
    gpuMilli: usage.gpuMilliMs * perMs,
    cpuMilli: usage.cpuMilliMs * perMs,
    memoryMib: usage.memoryMibMs * perMs,
  };
}
