import type { TaskRecord } from "./records.ts";

/** What each project's tasks and replicas hold of GPUs, brought up to date with each. */
export class Holdings {
  readonly #gpuMilli = new Map<string, number>();
  /** By project, then job: its tasks that may hold something. */
  readonly #jobs = new Map<string, Map<string, number>>();
  #size = 0;

  /** Jobs of which a task may hold something. */
  get size(): number {
    return this.#size;
  }

  /** Thousandths of GPU that the project holds. */
  gpuMilli(project: string): number {
    return this.#gpuMilli.get(project) ?? 0;
  }

  /** The project's jobs of which a task may hold something. */
  jobs(project: string): Iterable<string> {
    return this.#jobs.get(project)?.keys() ?? [];
  }

  moveTask(project: string, { jobId, devices, gpuMilli }: TaskRecord, sign: 1 | -1): void {
    this.moveGpus(project, sign * devices.length * gpuMilli);
    const jobs = this.#jobs.get(project) ?? new Map<string, number>();
    const tasks = (jobs.get(jobId) ?? 0) + sign;
    if (sign === 1 && tasks === 1) this.#size++;
    if (tasks > 0) jobs.set(jobId, tasks);
    else if (jobs.delete(jobId)) this.#size--;
    if (jobs.size > 0) this.#jobs.set(project, jobs);
    else this.#jobs.delete(project);
  }

  moveGpus(project: string, gpuMilli: number): void {
    const held = this.gpuMilli(project) + gpuMilli;
    if (held === 0) this.#gpuMilli.delete(project);
    else this.#gpuMilli.set(project, held);
  }
}
