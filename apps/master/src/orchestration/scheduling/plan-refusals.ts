import { Backoff } from "@heddle/base/backoff";
import type { QueuedJob } from "@heddle/scheduler/model";
import { entryKey, type PlanEntry } from "@heddle/scheduler/plan-entry";

const retry = { baseMs: 100, maxMs: 30_000 };
/** Jobs whose refusals are remembered; the one refused longest ago is forgotten first. */
const MAX_JOBS = 10_000;

/** A plan entry that apply refused, and why. */
export interface RefusedEntry {
  readonly entry: PlanEntry;
  readonly why: string;
}

interface Refused {
  readonly backoff: Backoff;
  readonly notBeforeMs: number;
}

/**
 * Starts of this master's plans that apply refused. These jobs back off before they are planned again,
 * so that a planner and an apply that disagree do not fill the log.
 */
export class PlanRefusals {
  /** Keyed by the key of the plan entry. */
  readonly #jobs = new Map<string, Refused>();
  readonly #counts = new Map<string, number>();

  /** A plan of these entries was applied at the time, except for what was refused. */
  record(planned: readonly PlanEntry[], refused: readonly RefusedEntry[], nowMs: number): void {
    const without = new Set(refused.map(({ entry }) => entryKey(entry)));
    for (const id of planned.map(entryKey)) if (!without.has(id)) this.#jobs.delete(id);
    for (const { why } of refused) this.#counts.set(why, (this.#counts.get(why) ?? 0) + 1);
    for (const id of without) {
      const backoff = this.#jobs.get(id)?.backoff ?? new Backoff(retry);
      this.#jobs.delete(id);
      this.#jobs.set(id, { backoff, notBeforeMs: nowMs + Math.ceil(backoff.nextMs()) });
    }
    for (const id of this.#jobs.keys()) {
      if (this.#jobs.size <= MAX_JOBS) return;
      this.#jobs.delete(id);
    }
  }

  /** The queue with the waits of refused jobs among the jobs' own. */
  delay(queue: readonly QueuedJob[]): readonly QueuedJob[] {
    if (this.#jobs.size === 0) return queue;
    return queue.map((job) => {
      const refused = this.#jobs.get(entryKey(job.entry));
      const notBeforeMs = Math.max(job.notBeforeMs, refused?.notBeforeMs ?? 0);
      return notBeforeMs === job.notBeforeMs ? job : { ...job, notBeforeMs };
    });
  }

  /** Keyed by why, how often since this master started. */
  counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }
}
