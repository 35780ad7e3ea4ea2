import type { SlurmSettings } from "../../config/slurm-settings.ts";
import type { TaskPlan } from "../../records/task-plan.ts";
import { CONTROL_FILES } from "../runners/program/messages.ts";

/** Memory of the runner in addition to the task's. */
const RUNNER_BYTES = 96 * 2 ** 20;
/** A job that outlives its worker, its lease and its runner ends this long after its maximum. */
const DEADLINE_SLACK_MIN = 5;
/** How long a job waits for what it is to run: its worker may be busy. */
const MAX_WAIT_S = 120;

/** The options of sbatch for a task. */
export function jobOptions(
  { spec, devices }: TaskPlan,
  { partition, options }: SlurmSettings,
): string[] {
  const { cpuMilli, memoryBytes, maxRuntimeMs } = spec;
  const none = "/dev/null";
  return [
    "--no-requeue",
    "--export=NIL",
    "--nodes=1",
    "--ntasks=1",
    "--chdir=/",
    // The runner writes the task's files itself.
    ...["input", "output", "error"].map((stream) => `--${stream}=${none}`),
    `--cpus-per-task=${Math.max(1, Math.ceil(cpuMilli / 1_000))}`,
    ...(memoryBytes > 0 ? [`--mem=${Math.ceil((memoryBytes + RUNNER_BYTES) / 2 ** 20)}M`] : []),
    ...(devices.length > 0 ? [`--gres=gpu:${devices.length}`] : []),
    ...(maxRuntimeMs > 0
      ? [`--time=${Math.ceil(maxRuntimeMs / 60_000) + DEADLINE_SLACK_MIN}`]
      : []),
    ...(partition === "" ? [] : [`--partition=${partition}`]),
    ...options,
  ];
}

/** Slurm keeps it: it has nothing of the task but the folder where the rest will be. */
export function jobScript(runner: readonly string[], folder: string): string {
  const program = `${folder}/${CONTROL_FILES.program}`;
  return [
    "#!/bin/sh",
    `n=0; until [ -e ${quoted(program)} ]; do`,
    `  [ $n -lt ${MAX_WAIT_S} ] || exit 75; n=$((n + 1)); sleep 1`,
    "done",
    `exec ${[...runner, folder].map(quoted).join(" ")}`,
    "",
  ].join("\n");
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
