import { availableParallelism } from "node:os";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import type { TaskPlan } from "../../records/task-plan.ts";
import type { TaskLaunch } from "../executors/executor.ts";
import type { TaskNode } from "../task-node.ts";

/** The orders of a task's trainer, but for the folder of its sockets. */
export function trainerOrders(
  { plan, environment, ...places }: TaskLaunch,
  node: TaskNode,
  plugins: readonly PluginEntry[],
): Omit<TrainerOrders, "socketDirectory"> {
  const { id, spec } = plan;
  const { parameterServers, readyServers, lostServers, jobToken, ticket, nodes } = places;
  const { credentials, host, version } = node;
  const path = (name: string) => {
    const found = environment[name];
    if (found !== undefined) return found;
    throw new Error(`a task's environment has no ${name}`);
  };
  return {
    jobId: id.jobId,
    attempt: id.attempt,
    rank: id.rank,
    tasks: spec.tasks,
    jobName: spec.jobName,
    algorithm: spec.algorithm,
    config: configOf(plan),
    parameterServers,
    readyServers,
    lostServers,
    host,
    release: version,
    plugins,
    failureTolerance: spec.failureTolerance,
    incarnation: id.incarnation,
    // A task that others use as their leader could not be lost alone.
    nodes: spec.failureTolerance > 0 ? [] : nodes,
    jobToken: Buffer.from(jobToken).toString("hex"),
    ticket,
    authority: credentials.tls?.material.authority,
    resumeFrom: spec.resumeFrom,
    keepCheckpoints: spec.keepCheckpoints,
    threads: Math.max(1, Math.min(availableParallelism(), Math.floor(spec.cpuMilli / 1_000))),
    hasGpu: hasGpu(plan, node),
    checkpointDirectory: path("HEDDLE_CHECKPOINT_DIR"),
    artifactDirectory: path("HEDDLE_ARTIFACT_DIR"),
    progressFile: path("HEDDLE_PROGRESS_FILE"),
  };
}

/** The config as JSON; submission has refused invalid JSON. */
export function configOf({ spec }: TaskPlan): Readonly<Record<string, unknown>> {
  return JSON.parse(spec.config || "{}") as Readonly<Record<string, unknown>>;
}

/** Whether the task holds devices, and none of them is simulated. */
export function hasGpu({ devices }: TaskPlan, node: TaskNode): boolean {
  const real = node.gpus().filter(({ simulated }) => !simulated);
  const indexes = new Set(real.map(({ index }) => index));
  return devices.length > 0 && devices.every((index) => indexes.has(index));
}
