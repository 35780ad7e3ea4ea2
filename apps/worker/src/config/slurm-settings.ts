import { AppError } from "@heddle/base/errors";
import type { FlagHelp } from "@heddle/node-agent/node-flags";

/** The flags of a worker before a cluster of Slurm, whose jobs its tasks are. */
export const SLURM_FLAGS = {
  "slurm-partition": ["NAME", "partition for tasks (default: that of Slurm)"],
  "slurm-options": [
    "OPTIONS",
    "further options of sbatch for tasks, as --account=ml --constraint=h100",
  ],
} as const satisfies Record<string, FlagHelp>;

const PARTITION = /^[\w.-]{1,64}$/;
const OPTION = /^--([a-z][a-z-]{1,40})(=\S{1,256})?$/;
/** Options that the worker itself sets, or that would change the job's owner or how it ends. */
const OWN =
  /^(parsable|quiet|requeue|no-requeue|export|export-file|nodes|ntasks|job-name|chdir|input|output|error|open-mode|cpus-per-task|mem|mem-per-cpu|gres|gpus.*|partition|time|wait|wrap|array|uid|gid|signal|hold|dependency|test-only)$/;
const MAX_OPTIONS = 32;

/** A worker's settings for tasks that run as jobs of Slurm. */
export interface SlurmSettings {
  /** Empty: Slurm's own. */
  readonly partition: string;
  /** Further options of sbatch. */
  readonly options: readonly string[];
}

/** Undefined where tasks are no jobs of Slurm. Throws an AppError `invalid_value`. */
export function readSlurmSettings(
  flags: Readonly<Record<string, string | undefined>>,
): SlurmSettings | undefined {
  if (flags["executor"] !== "slurm") {
    const given = Object.keys(SLURM_FLAGS).find((flag) => flags[flag]);
    if (given === undefined) return undefined;
    throw invalid(`--${given} is of tasks in Slurm: add --executor slurm`);
  }
  const { "slurm-partition": partition = "", "slurm-options": text = "" } = flags;
  if (partition !== "" && !PARTITION.test(partition)) {
    throw invalid(`--slurm-partition takes the name of a partition, not ${partition}`);
  }
  const options = text.split(/\s+/).filter((option) => option !== "");
  if (options.length > MAX_OPTIONS) {
    throw invalid(`--slurm-options takes at most ${MAX_OPTIONS} options`);
  }
  for (const option of options) {
    const name = OPTION.exec(option)?.[1];
    if (name === undefined) {
      throw invalid(`--slurm-options takes options as --account=ml, not ${option}`);
    }
    if (OWN.test(name)) {
      throw invalid(`--slurm-options cannot have --${name}, which the worker gives itself`);
    }
  }
  return { partition, options };
}

function invalid(message: string): AppError {
  return new AppError("invalid_value", message);
}
