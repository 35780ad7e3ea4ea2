import { AppError } from "@heddle/base/errors";
import type { ExecutorJob, ExecutorJobState } from "@heddle/plugin-kit/points/executors";
import type { SlurmSettings } from "../../config/slurm-settings.ts";
import type { BatchSystem } from "../batch/batch-place.ts";
import { runSlurm } from "./slurm-cli.ts";

/** A job that outlives its worker, its lease and its runner ends this long after its maximum. */
const DEADLINE_SLACK_MIN = 5;

/** Failures that a retry does not solve. */
const REFUSED =
  /node configuration|[Pp]artition|[Aa]ccount|QOS|constraint|[Ii]nvalid|unrecognized|limit/;
/** Reasons to wait that do not pass by themselves. */
const HOPELESS =
  /^(PartitionTimeLimit|PartitionNodeLimit|BadConstraints|InvalidAccount|InvalidQOS|(QOS|Assoc)Max\w*Per(Job|Node)\w*|DependencyNeverSatisfied|launch.failed.requeued.held)/i;

const ENDED: ReadonlySet<string> = new Set([
  "BOOT_FAIL",
  "CANCELLED",
  "COMPLETED",
  "DEADLINE",
  "FAILED",
  "NODE_FAIL",
  "PREEMPTED",
  "REVOKED",
  "TIMEOUT",
]);

/** Jobs by the commands of Slurm. */
export class SlurmSystem implements BatchSystem {
  readonly #settings: SlurmSettings;

  constructor(settings: SlurmSettings) {
    this.#settings = settings;
  }

  async submit(job: ExecutorJob): Promise<void> {
    const own = ["--parsable", "--quiet", `--job-name=${job.name}`];
    const options = [...own, ...jobOptions(job, this.#settings)];
    try {
      await runSlurm("sbatch", options, `#!/bin/sh\n${job.script}`);
    } catch (cause) {
      const { message } = cause as Error;
      if (REFUSED.test(message)) throw new AppError("invalid_value", message, { cause });
      throw cause;
    }
  }

  async list(prefix: string): Promise<readonly ExecutorJobState[]> {
    const format = ["--noheader", "--me", "--states=all", "--format=%i|%T|%r|%j"];
    const jobs = new Map<string, { readonly rank: number; readonly job: ExecutorJobState }>();
    for (const line of (await runSlurm("squeue", format)).split("\n")) {
      const [id, state = "", reason = "", ...rest] = line.split("|");
      const name = rest.join("|");
      if (!name.startsWith(prefix)) continue;
      // One that has not ended comes before a later one that has.
      const rank = ENDED.has(state) ? Number(id) : Number(id) + 2 ** 40;
      if (rank <= (jobs.get(name)?.rank ?? -1)) continue;
      const words = reason === "" || reason === "None" ? state : `${state}, ${reason}`;
      const job = { name, state: stateOf(state, reason), detail: `${words} (${id})` };
      jobs.set(name, { rank, job });
    }
    return [...jobs.values()].map(({ job }) => job);
  }

  /** All of this name, whether they wait or run. */
  async cancel(name: string): Promise<void> {
    await runSlurm("scancel", ["--quiet", "--me", `--name=${name}`]);
  }
}

function stateOf(state: string, reason: string): ExecutorJobState["state"] {
  if (state === "RUNNING") return "running";
  if (state === "OUT_OF_MEMORY") return "out-of-memory";
  if (ENDED.has(state)) return "ended";
  return state === "PENDING" && HOPELESS.test(reason) ? "refused" : "waiting";
}

/** The options of sbatch for a job. */
function jobOptions(job: ExecutorJob, { partition, options }: SlurmSettings): string[] {
  const { cpus, memoryBytes, gpus, maxRuntimeMs } = job;
  const none = "/dev/null";
  return [
    "--no-requeue",
    "--export=NIL",
    "--nodes=1",
    "--ntasks=1",
    "--chdir=/",
    // The runner writes the task's files itself.
    ...["input", "output", "error"].map((stream) => `--${stream}=${none}`),
    `--cpus-per-task=${Math.max(1, Math.ceil(cpus))}`,
    ...(memoryBytes > 0 ? [`--mem=${Math.ceil(memoryBytes / 2 ** 20)}M`] : []),
    ...(gpus > 0 ? [`--gres=gpu:${gpus}`] : []),
    ...(maxRuntimeMs > 0
      ? [`--time=${Math.ceil(maxRuntimeMs / 60_000) + DEADLINE_SLACK_MIN}`]
      : []),
    ...(partition === "" ? [] : [`--partition=${partition}`]),
    ...options,
  ];
}
