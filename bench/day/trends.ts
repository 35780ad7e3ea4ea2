import type { ProcessSeries } from "../support/process-sampler.ts";
import { median } from "../support/statistics.ts";

/** What the processes of a role had in the second and in the last quarter of a run. */
export interface RoleTrend {
  readonly role: string;
  readonly processes: number;
  readonly residentMiB: { readonly second: number; readonly last: number; readonly max: number };
  readonly descriptors: { readonly second: number; readonly last: number; readonly max: number };
  readonly isFlat: boolean;
}

/** A process that starts is smaller, and its compiler still works. */
const WARM_MS = 45_000;
const MIB = 2 ** 20;
const MAX_GROWTH = 1.1;
const MAX_GROWTH_MIB = 16;
const MAX_MORE_DESCRIPTORS = 8;

/**
 * Compares by role, since faults end each process long before the run does. What is kept in files
 * or in the replicated state makes the later processes of a role larger.
 */
export function roleTrends(all: readonly ProcessSeries[], fromMs: number, toMs: number) {
  const quarter = (toMs - fromMs) / 4;
  return [...Map.groupBy(all, ({ role }) => role)].map(([role, list]): RoleTrend => {
    const warm = list.flatMap(({ samples }) =>
      samples.filter(({ atMs }) => atMs - (samples[0]?.atMs ?? 0) >= WARM_MS),
    );
    const of = (pick: (sample: (typeof warm)[number]) => number) => {
      const within = (from: number, to: number) =>
        median(warm.filter(({ atMs }) => atMs >= from && atMs < to).map(pick));
      return {
        second: within(fromMs + quarter, fromMs + 2 * quarter),
        last: within(toMs - quarter, toMs),
        max: Math.max(0, ...warm.map(pick)),
      };
    };
    const residentMiB = of(({ residentBytes }) => residentBytes / MIB);
    const descriptors = of((sample) => sample.descriptors);
    const isFlat =
      residentMiB.last <=
        Math.max(residentMiB.second * MAX_GROWTH, residentMiB.second + MAX_GROWTH_MIB) &&
      descriptors.last <= descriptors.second + MAX_MORE_DESCRIPTORS;
    return { role, processes: list.length, residentMiB, descriptors, isFlat };
  });
}
