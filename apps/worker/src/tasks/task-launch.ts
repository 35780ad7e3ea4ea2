import { resolve } from "node:path";
import type { TaskDirectory } from "../records/task-directory.ts";
import type { TaskPlan } from "../records/task-plan.ts";
import type { GangPlaces, TaskLaunch } from "./executors/executor.ts";
import { taskEnvironment } from "./executors/task-environment.ts";
import { withInputs } from "./inputs/task-inputs.ts";
import type { TaskContext } from "./task-context.ts";
import type { TaskSpan } from "./task-span.ts";

interface LaunchedTask {
  readonly plan: TaskPlan;
  readonly directory: TaskDirectory;
  readonly span: TaskSpan;
}

/** What an executor needs to start the task. */
export function taskLaunch(
  { plan, directory, span }: LaunchedTask,
  { node, checkpoints }: Pick<TaskContext, "node" | "checkpoints">,
  places: GangPlaces,
): TaskLaunch {
  const checkpointDirectory = checkpoints.directory;
  const environment = taskEnvironment({
    plan,
    nodeName: node.name,
    peers: places.peers,
    checkpointDirectory,
    progressFile: directory.progress,
    artifactDirectory: directory.artifacts,
    configFile: directory.config,
    gpus: node.gpus(),
    own: process.env,
    secretVariables: places.secretVariables,
    trace: span.environment,
  });
  return {
    plan,
    root: directory.root,
    jobId: plan.id.jobId,
    checkpointDirectory,
    directory: directory.path,
    workingDirectory: resolve(directory.work, plan.spec.workingDirectory),
    secretVariables: places.secretVariables,
    environment: withInputs(environment, plan, directory.inputs),
    stdout: directory.stream("stdout"),
    stderr: directory.stream("stderr"),
    mounts: [
      ...[directory.work, directory.artifacts, directory.progress, checkpointDirectory].map(
        (path) => ({ path, isReadOnly: false }),
      ),
      ...(plan.spec.algorithm === "" ? [] : [{ path: directory.config, isReadOnly: true }]),
    ],
    parameterServers: places.parameterServers,
    readyServers: places.readyServers,
    lostServers: places.lostServers,
    jobToken: places.jobToken,
    ticket: places.ticket,
    nodes: places.nodes,
  };
}
