import type { TaskRecord } from "../records/records.ts";

/**
 * GPUs held by each project's tasks and replicas, and all shared storage in use; updated per
 * change.
 */
export class Holdings {
  readonly #gpuMilli = new Map<string, number>();
  /** Keyed by project, then job: its tasks that may hold resources. */
  readonly #jobs = new Map<string, Map<string, number>>();
  #size = 0;
  #sharedStorageMb = 0;

  /** Jobs of which a task may hold resources. */
  get size(): number {
    return this.#size;
  }

  /** Shared storage of jobs with a task that may hold resources, in MB. */
  get sharedStorageMb(): number {
    return this.#sharedStorageMb;
  }

  /** Thousandths of GPU that the project holds. */
  gpuMilli(project: string): number {
    return this.#gpuMilli.get(project) ?? 0;
  }

  /** The project's jobs of which a task may hold resources. */
  jobs(project: string): Iterable<string> {
    return this.#jobs.get(project)?.keys() ?? [];
  }

  /** `storageMb` is the job's shared storage, counted once for all its tasks. */
  moveTask(
    project: string,
    { jobId, devices, gpuMilli }: TaskRecord,
    sign: 1 | -1,
    storageMb: number,
  ): void {
    this.moveGpus(project, sign * devices.length * gpuMilli);
    const jobs = this.#jobs.get(project) ?? new Map<string, number>();
    const tasks = (jobs.get(jobId) ?? 0) + sign;
    if (tasks === (sign === 1 ? 1 : 0)) {
      this.#size += sign;
      this.#sharedStorageMb += sign * storageMb;
    }
    if (tasks > 0) jobs.set(jobId, tasks);
    else jobs.delete(jobId);
    if (jobs.size > 0) this.#jobs.set(project, jobs);
    else this.#jobs.delete(project);
  }

  moveGpus(project: string, gpuMilli: number): void {
    const held = this.gpuMilli(project) + gpuMilli;
    if (held === 0) this.#gpuMilli.delete(project);
    else this.#gpuMilli.set(project, held);
  }
}
