import type { JobRecord } from "../records/records.ts";

type Submitted = Pick<JobRecord, "id" | "submittedIndex">;

/** The known jobs in the order of their submission. */
export class SubmissionOrder {
  readonly #jobs: Submitted[] = [];

  add({ id, submittedIndex }: JobRecord): void {
    this.#jobs.splice(this.#placeOf(submittedIndex), 0, { id, submittedIndex });
  }

  remove({ id, submittedIndex }: JobRecord): void {
    const at = this.#placeOf(submittedIndex);
    if (this.#jobs[at]?.id === id) this.#jobs.splice(at, 1);
  }

  /**
   * The ids of the jobs submitted before this log index, newest first. Jobs may come and go while
   * the caller reads.
   */
  *newestBefore(index = Number.POSITIVE_INFINITY): Generator<string, void> {
    let at = this.#placeOf(index) - 1;
    for (let job = this.#jobs[at]; job; job = this.#jobs[at]) {
      yield job.id;
      if (this.#jobs[at] !== job) at = this.#placeOf(job.submittedIndex);
      at--;
    }
  }

  /** The place of the first job that was submitted at this log index or later. */
  #placeOf(index: number): number {
    const newest = this.#jobs.at(-1);
    if (!newest || newest.submittedIndex < index) return this.#jobs.length;
    let low = 0;
    let high = this.#jobs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#jobs[middle]!.submittedIndex < index) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
