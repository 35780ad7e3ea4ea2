import { Backoff } from "@heddle/base/backoff";
import type { RefusedStart } from "@heddle/control/command";
import type { QueuedJob } from "@heddle/scheduler/model";

const retry = { baseMs: 100, maxMs: 30_000 };
/** Jobs whose refusals are remembered; the one refused longest ago is forgotten first. */
const MAX_JOBS = 10_000;

interface Refused {
  readonly backoff: Backoff;
  readonly notBeforeMs: number;
}

/**
 * Starts of this master's plans that apply refused. These jobs back off before they are planned again,
 * so that a planner and an apply that disagree do not fill the log.
 */
export class PlanRefusals {
  readonly #jobs = new Map<string, Refused>();
  readonly #counts = new Map<string, number>();

  /** A plan of these jobs was applied at the time, but for what was refused. */
  record(jobIds: Iterable<string>, refused: readonly RefusedStart[], nowMs: number): void {
    const without = new Set(refused.map(({ jobId }) => jobId));
    for (const id of jobIds) if (!without.has(id)) this.#jobs.delete(id);
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
      const notBeforeMs = Math.max(job.notBeforeMs, this.#jobs.get(job.id)?.notBeforeMs ?? 0);
      return notBeforeMs === job.notBeforeMs ? job : { ...job, notBeforeMs };
    });
  }

  /** By why, how often since this master started. */
  counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }
}
