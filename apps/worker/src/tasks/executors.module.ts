import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Module } from "@nestjs/common";
import { checkpointRootOf, WORKER_OPTIONS, type WorkerOptions } from "../config/worker-options.ts";
import { Isolation } from "./isolation/isolation.ts";
import { OuterPlaces } from "./outer-places.ts";
import { TASK_NODE, type TaskNode } from "./task-node.ts";
import { WorkerExecutors } from "./worker-executors.ts";
import { pluginFolders } from "./worker-plugins.ts";

/** What this machine can run tasks with, and how far it isolates them. */
@Module({
  providers: [
    { provide: Isolation, inject: [WORKER_OPTIONS, TASK_NODE], useFactory: findIsolation },
    {
      provide: WorkerExecutors,
      inject: [TASK_NODE, Isolation, WORKER_OPTIONS, OuterPlaces, PluginSet],
      useFactory: WorkerExecutors.find,
    },
  ],
  exports: [WorkerExecutors],
})
export class ExecutorsModule {}

/** Logs the isolation, with what is missing and how to get it. */
async function findIsolation(options: WorkerOptions, { log }: TaskNode): Promise<Isolation> {
  const { hiddenPaths = [], secretPaths = [] } = options;
  const isolation = await Isolation.find({
    dataDirectory: options.dataDirectory,
    checkpointRoot: checkpointRootOf(options),
    taskUsers: options.taskUsers,
    hidden: [...hiddenPaths, ...secretPaths],
    writable: options.writablePaths,
    onFault: (message) => log.warn({}, message),
    programs: pluginFolders(options),
  });
  const { level, reasons } = isolation;
  if (level === "none" && options.isIsolationOptional !== true) {
    const advice =
      "no job of processes or training comes to this worker: run it as root without `--task-users own`, or as another user on Linux 5.13 or newer with Landlock, or allow it with --task-isolation optional";
    log.warn({ isolation: level, reasons, advice }, "tasks could read this worker's secrets");
  } else if (reasons.length > 0) log.warn({ isolation: level, reasons }, "how tasks are isolated");
  else log.info({ isolation: level }, "how tasks are isolated");
  for (const folder of isolation.closedFolders) {
    const message = `tasks make no files in ${folder}, since the data directory ${options.dataDirectory} lies below it: give --data a place elsewhere`;
    log.warn({ isolation: level }, message);
  }
  return isolation;
}
