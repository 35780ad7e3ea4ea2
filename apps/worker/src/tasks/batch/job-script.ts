import type { ExecutorJob } from "@heddle/plugin-kit/points/executors";
import type { TaskPlan } from "../../records/task-plan.ts";
import { CONTROL_FILES, RUNNER_MARK } from "../runners/program/messages.ts";

/** Memory of the runner in addition to the task's. */
const RUNNER_BYTES = 96 * 2 ** 20;
/** How long a job waits for what it is to run: its worker may be busy. */
const MAX_WAIT_S = 120;

/** The job of a task: its runner, which finds the rest in the folder. */
export function batchJob(
  name: string,
  { spec, devices }: TaskPlan,
  runner: { readonly command: readonly string[]; readonly folder: string },
): ExecutorJob {
  const { cpuMilli, memoryBytes, maxRuntimeMs, jobName, project } = spec;
  return {
    name,
    script: jobScript(name, runner.command, runner.folder),
    cpus: cpuMilli / 1_000,
    memoryBytes: memoryBytes > 0 ? memoryBytes + RUNNER_BYTES : 0,
    gpus: devices.length,
    maxRuntimeMs,
    jobName,
    project,
  };
}

/** The system keeps it: it has nothing of the task but the folder where the rest will be. */
function jobScript(name: string, command: readonly string[], folder: string): string {
  const program = quoted(`${folder}/${CONTROL_FILES.program}`);
  return [
    // NODE_OPTIONS of the submitter must not reach the runner, a Node program too.
    "unset NODE_OPTIONS",
    `export ${RUNNER_MARK}=${quoted(name)}`,
    `n=0; until [ -e ${program} ]; do`,
    `  [ $n -lt ${MAX_WAIT_S} ] || exit 75; n=$((n + 1)); sleep 1`,
    "done",
    `exec ${[...command, folder].map(quoted).join(" ")}`,
    "",
  ].join("\n");
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
