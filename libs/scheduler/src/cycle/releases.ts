import type { Steps } from "@heddle/base/async/steps";
import { type Ledger, locate } from "../cluster/ledger.ts";
import { runtimeBoundMs } from "../cluster/precedence.ts";
import type { RequestShape } from "../cluster/shape.ts";
import { addShared } from "../cluster/shared-amounts.ts";
import type { RunningJob, SchedulerSettings, SharedAmounts } from "../model.ts";
import { type GangRequest, gangFits, type PlacedTask } from "../placement/gang.ts";
import type { ClusterView } from "./cluster-view.ts";

/** Tasks that one step locates or releases, 1 to 3 ms. */
export const TASKS_PER_STEP = 8_192;

/** The tasks of a job and the latest time of their release. */
export interface Release {
  /** Infinite for a job without an end. */
  readonly atMs: number;
  readonly shape: RequestShape;
  readonly tasks: readonly PlacedTask[];
  /** Its shared storage and places on parameter servers. */
  readonly shared?: SharedAmounts | undefined;
}

/** The runtime bound of a running job, or the end of its grace if it is being evicted. */
function latestEndMs(job: RunningJob, nowMs: number, settings: SchedulerSettings): number {
  const boundMs = job.evicting?.byMs ?? job.startedAtMs + runtimeBoundMs(job, settings);
  return Math.max(nowMs, boundMs);
}

/**
 * The releases of running jobs and of the jobs that the cycle starts, by job id. Those of running
 * jobs are computed on first use: only a job that must wait needs them.
 */
export class Releases {
  readonly #view: ClusterView;
  readonly #settings: SchedulerSettings;
  readonly #nowMs: number;
  /** The releases that the cycle itself has set. */
  readonly #set = new Map<string, Release>();
  #all: Map<string, Release> | undefined;

  constructor(view: ClusterView, settings: SchedulerSettings, nowMs: number) {
    this.#view = view;
    this.#settings = settings;
    this.#nowMs = nowMs;
  }

  set(id: string, release: Release): void {
    this.#set.set(id, release);
    this.#all?.set(id, release);
  }

  /** The releases of the jobs that the cycle has started, and of its victims. */
  get started(): ReadonlyMap<string, Release> {
    return this.#set;
  }

  /** All releases; `set` changes the same map. */
  *all(): Steps<ReadonlyMap<string, Release>> {
    if (this.#all) return this.#all;
    const { running, shapes, roster } = this.#view;
    const all = new Map<string, Release>();
    let located = 0;
    for (const job of running.values()) {
      const atMs = latestEndMs(job, this.#nowMs, this.#settings);
      const tasks = [...locate(job.placements, roster)];
      all.set(job.id, { atMs, shape: shapes.of(job.request), tasks, shared: job.shared });
      located += 1 + tasks.length;
      if (located < TASKS_PER_STEP) continue;
      located = 0;
      yield;
    }
    for (const [id, release] of this.#set) all.set(id, release);
    this.#all = all;
    return all;
  }
}

/** Releases everything that is due by `atMs`. */
export function* releaseUntil(
  ledger: Ledger,
  releases: Iterable<Release>,
  atMs: number,
): Steps<void> {
  let released = 0;
  for (const release of releases) {
    if (release.atMs > atMs) continue;
    releaseAll(ledger, release);
    released += 1 + release.tasks.length;
    if (released < TASKS_PER_STEP) continue;
    released = 0;
    yield;
  }
}

/** Releases all that the job holds. */
export function releaseAll(ledger: Ledger, { shape, tasks, shared }: Omit<Release, "atMs">): void {
  for (const { node, devices } of tasks) ledger.release(node, shape, devices);
  ledger.releaseShared(shared);
}

/** Takes all that the job is to hold, even if it is not free. */
export function takeAll(ledger: Ledger, { shape, tasks, shared }: Omit<Release, "atMs">): void {
  for (const { node, devices } of tasks) ledger.take(node, shape, devices);
  ledger.shared = addShared(ledger.shared, shared, -1);
}

/**
 * The earliest time at which the gang fits if every job stays to its latest end and nothing else
 * starts; undefined if never. More is free later, which allows a binary search.
 */
export function* earliestStartMs(
  ledger: Ledger,
  releases: Iterable<Release>,
  gang: GangRequest,
): Steps<number | undefined> {
  const due = [...releases].filter(({ atMs }) => Number.isFinite(atMs));
  due.sort((a, b) => a.atMs - b.atMs);
  // `due` before each of these positions is all that is due by some time.
  const ends = due.flatMap(({ atMs }, at) => (due[at + 1]?.atMs === atMs ? [] : [at + 1]));
  yield;
  let base = ledger.clone();
  let released = 0;
  let low = 0;
  let high = ends.length - 1;
  for (let probe = high; probe >= 0; probe = (low + high) >> 1) {
    const then = base.clone();
    yield* releaseUntil(then, due.slice(released, ends[probe]), Number.MAX_VALUE);
    yield;
    const fits = gangFits(then, gang);
    yield;
    if (fits) high = probe;
    else if (probe === ends.length - 1) return undefined;
    else {
      low = probe + 1;
      base = then;
      released = ends[probe]!;
    }
    if (low >= high) return due[ends[high]! - 1]!.atMs;
  }
  return undefined;
}
