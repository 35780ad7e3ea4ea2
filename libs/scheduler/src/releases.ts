import { type GangRequest, gangFits, type PlacedTask } from "./gang.ts";
import { type Ledger, locate } from "./ledger.ts";
import type { RunningJob, SchedulerSettings } from "./model.ts";
import { runtimeBoundMs } from "./precedence.ts";
import type { Shape, ShapeTable } from "./shape.ts";

/** A job's tasks and when they are given back at the latest; infinite for one without an end. */
export interface Release {
  readonly atMs: number;
  readonly shape: Shape;
  readonly tasks: readonly PlacedTask[];
}

/** When a running job is gone at the latest: its bound, or the end of its eviction's grace. */
export function latestEndMs(job: RunningJob, nowMs: number, settings: SchedulerSettings): number {
  const boundMs = job.evicting?.byMs ?? job.startedAtMs + runtimeBoundMs(job, settings);
  return Math.max(nowMs, boundMs);
}

/** What a running job gives back, at the given time. */
export function releaseOf(
  job: RunningJob,
  atMs: number,
  shapes: ShapeTable,
  positions: ReadonlyMap<string, number>,
): Release {
  const tasks = [...locate(job.placements, positions)];
  return { atMs, shape: shapes.of(job.request), tasks };
}

/** Gives back everything that is due by `atMs`. */
export function releaseUntil(ledger: Ledger, releases: readonly Release[], atMs: number): void {
  for (const release of releases) {
    if (release.atMs > atMs) continue;
    for (const { node, devices } of release.tasks) ledger.release(node, release.shape, devices);
  }
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
