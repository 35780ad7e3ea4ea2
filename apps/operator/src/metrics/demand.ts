import type { Heddle } from "@heddle/client/heddle";
import type { JobState } from "@heddle/contracts/api/job-spec";

/** What autoscalers read of the cluster, by the metric's name. */
export type Demand = Readonly<Record<DemandName, number>>;

/** Each metric, and what it counts. */
export const DEMAND = {
  heddle_job_tasks: "Tasks of jobs that run or wait for places.",
  heddle_job_gpus: "GPUs that these jobs hold or wait for.",
  heddle_jobs_waiting: "Jobs that wait for places.",
  heddle_requests: "Calls of models that run or wait.",
  heddle_requests_waiting: "Calls of models that wait.",
} as const satisfies Readonly<Record<string, string>>;

export type DemandName = keyof typeof DEMAND;

/** Jobs in these states take places, or will when there are some. */
const WANTING = [
  "pending",
  "scheduled",
  "starting",
  "running",
  "checkpointing",
  "preempted",
  "recovering",
  "retrying",
] as const satisfies readonly JobState[];
/** Jobs that are counted: beyond them no sensible bound of replicas matters. */
const MAX_JOBS = 10_000;
const PAGE = 1_000;
/** Autoscalers ask for each of their metrics: the masters are asked once for all of them. */
const FRESH_MS = 3_000;

/** The cluster's demand, requested from the masters when it is read. */
export class DemandReader {
  readonly #heddle: Pick<Heddle, "jobs" | "cluster">;
  #last: { readonly atMs: number; readonly demand: Promise<Demand> } | undefined;

  constructor(heddle: Pick<Heddle, "jobs" | "cluster">) {
    this.#heddle = heddle;
  }

  read(nowMs = performance.now()): Promise<Demand> {
    if (this.#last && nowMs - this.#last.atMs < FRESH_MS) return this.#last.demand;
    const demand = this.#ask();
    this.#last = { atMs: nowMs, demand };
    demand.catch(() => {
      this.#last = undefined;
    });
    return demand;
  }

  async #ask(): Promise<Demand> {
    const { requests, queues } = await this.#heddle.cluster.metrics();
    const waiting = requests.waiting + queues.dispatch;
    let [tasks, gpus, waitingJobs, counted] = [0, 0, 0, 0];
    for await (const job of this.#heddle.jobs.list({ state: WANTING, limit: PAGE })) {
      tasks += job.tasks;
      gpus += job.gpu_count;
      if (job.state === "pending") waitingJobs += 1;
      if (++counted >= MAX_JOBS) break;
    }
    return {
      heddle_job_tasks: tasks,
      heddle_job_gpus: gpus,
      heddle_jobs_waiting: waitingJobs,
      heddle_requests: requests.running + waiting,
      heddle_requests_waiting: waiting,
    };
  }
}
