import { join } from "node:path";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";
import { Module } from "@nestjs/common";
import { ARTIFACT_BYTES } from "../artifacts/artifact-source.ts";
import { ArtifactStore } from "../artifacts/artifact-store.ts";
import { ArtifactsModule } from "../artifacts/artifacts.module.ts";
import { pullAccess } from "../artifacts/object-source.ts";
import { ARTIFACT_REPLICA, type ArtifactReplica } from "../artifacts/replica.ts";
import {
  checkpointRootOf,
  maxArtifactBytesOf,
  WORKER_OPTIONS,
  type WorkerOptions,
} from "../config/worker-options.ts";
import { LOGGED_TASKS } from "../logs/logged-tasks.ts";
import { CheckpointCopies } from "./checkpoints/checkpoint-copies.ts";
import { ExecutorsModule } from "./executors.module.ts";
import { LeaseKeeper } from "./leases/lease-keeper.ts";
import { LeasesModule } from "./leases/leases.module.ts";
import { TASK_NODE } from "./task-node.ts";
import { TASK_PLACES, type TaskPlaces, TaskTable } from "./task-table.ts";
import { WorkerExecutors } from "./worker-executors.ts";

const DEFAULT_MAX_LOG_BYTES = 256 * 2 ** 20;

/** All tasks of this worker. They run under its lease, and leave logs and artifacts. */
@Module({
  imports: [ArtifactsModule, ExecutorsModule, LeasesModule],
  providers: [
    {
      provide: TASK_PLACES,
      inject: [WORKER_OPTIONS, ARTIFACT_REPLICA, ARTIFACT_BYTES],
      useFactory: placesOf,
    },
    {
      provide: TaskTable,
      inject: [TASK_NODE, TASK_PLACES, WorkerExecutors, LeaseKeeper, ArtifactStore],
      useFactory: (...parts: ConstructorParameters<typeof TaskTable>) => new TaskTable(...parts),
    },
    { provide: LOGGED_TASKS, useExisting: TaskTable },
  ],
  exports: [TaskTable, LOGGED_TASKS],
})
export class TaskTableModule {}

function placesOf(
  options: WorkerOptions,
  replica: ArtifactReplica | null,
  readArtifact: ArtifactBytes,
): TaskPlaces {
  const checkpointRoot = checkpointRootOf(options);
  return {
    root: join(options.dataDirectory, "jobs"),
    maxLogBytes: options.maxLogBytes ?? DEFAULT_MAX_LOG_BYTES,
    checkpointRoot,
    copies: replica
      ? new CheckpointCopies(checkpointRoot, replica, maxArtifactBytesOf(options))
      : undefined,
    inputs: { readArtifact, ...pullAccess(options.weightsHosts ?? []) },
  };
}
