import { type Ledger, locate } from "../cluster/ledger.ts";
import { runtimeBoundMs } from "../cluster/precedence.ts";
import type { RequestShape } from "../cluster/shape.ts";
import { addShared } from "../cluster/shared-amounts.ts";
import type { RunningJob, SchedulerSettings, SharedAmounts } from "../model.ts";
import { type GangRequest, gangFits, type PlacedTask } from "../placement/gang.ts";
import type { ClusterView } from "./cluster-view.ts";

/** A job's tasks and when they are given back at the latest; infinite for one without an end. */
export interface Release {
  readonly atMs: number;
  readonly shape: RequestShape;
  readonly tasks: readonly PlacedTask[];
  /** What it gives back that belongs to no node. */
  readonly shared?: SharedAmounts | undefined;
}

/** When a running job is gone at the latest: its bound, or the end of its eviction's grace. */
function latestEndMs(job: RunningJob, nowMs: number, settings: SchedulerSettings): number {
  const boundMs = job.evicting?.byMs ?? job.startedAtMs + runtimeBoundMs(job, settings);
  return Math.max(nowMs, boundMs);
}

/**
 * By job id, what it gives back and when at the latest: running jobs and those that a decision has
 * started. It is made when it is first asked for, which only a job that must wait does.
 */
export class Releases {
  readonly #layout: ClusterView;
  readonly #settings: SchedulerSettings;
  readonly #nowMs: number;
  /** What the decision itself has set. */
  readonly #set = new Map<string, Release>();
  #all: Map<string, Release> | undefined;

  constructor(layout: ClusterView, settings: SchedulerSettings, nowMs: number) {
    this.#layout = layout;
    this.#settings = settings;
    this.#nowMs = nowMs;
  }

  get(id: string): Release | undefined {
    return this.#made().get(id);
  }

  set(id: string, release: Release): void {
    this.#set.set(id, release);
    this.#all?.set(id, release);
  }

  /** What was started, by `set`. */
  get started(): ReadonlyMap<string, Release> {
    return this.#set;
  }

  values(): Release[] {
    return [...this.#made().values()];
  }

  #made(): Map<string, Release> {
    if (this.#all) return this.#all;
    const { running, shapes, roster } = this.#layout;
    const all = new Map<string, Release>();
    for (const job of running.values()) {
      const atMs = latestEndMs(job, this.#nowMs, this.#settings);
      const tasks = [...locate(job.placements, roster)];
      all.set(job.id, { atMs, shape: shapes.of(job.request), tasks, shared: job.shared });
    }
    for (const [id, release] of this.#set) all.set(id, release);
    this.#all = all;
    return all;
  }
}

/** Gives back everything that is due by `atMs`. */
export function releaseUntil(ledger: Ledger, releases: readonly Release[], atMs: number): void {
  for (const release of releases) {
    if (release.atMs > atMs) continue;
    releaseAll(ledger, release);
  }
}

/** Gives back all that the job holds. */
export function releaseAll(ledger: Ledger, { shape, tasks, shared }: Omit<Release, "atMs">): void {
  for (const { node, devices } of tasks) ledger.release(node, shape, devices);
  ledger.releaseShared(shared);
}

/** Takes all that the job is to hold, be it free or not: where too little is, nothing fits then. */
export function takeAll(ledger: Ledger, { shape, tasks, shared }: Release): void {
  for (const { node, devices } of tasks) ledger.take(node, shape, devices);
  ledger.shared = addShared(ledger.shared, shared, -1);
}

/**
 * The earliest time at which the gang fits if every job stays to its latest end and nothing else
 * starts; undefined where it does not fit even then. Later is never worse, hence the binary search.
 */
export function earliestStartMs(
  ledger: Ledger,
  releases: readonly Release[],
  gang: GangRequest,
): number | undefined {
  const finite = releases.map(({ atMs }) => atMs).filter((atMs) => Number.isFinite(atMs));
  const times = [...new Set(finite)].sort((a, b) => a - b);
  const fitsAt = (atMs: number): boolean => {
    const then = ledger.clone();
    releaseUntil(then, releases, atMs);
    return gangFits(then, gang);
  };
  if (times.length === 0 || !fitsAt(times.at(-1)!)) return undefined;
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (fitsAt(times[middle]!)) high = middle;
    else low = middle + 1;
  }
  return times[low];
}
