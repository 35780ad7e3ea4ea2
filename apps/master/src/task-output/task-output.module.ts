import type { KeyObject } from "node:crypto";
import { join } from "node:path";
import { taskKey } from "@heddle/control/jobs/records/records";
import type { Logger } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Inject, Module, type OnApplicationShutdown } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CREDENTIALS, PEPPER } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { ProjectSecrets } from "../control-plane/project-secrets.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../nodes/node-directory.ts";
import { ArtifactReader } from "./artifact-reader.ts";
import type { LogName } from "./log-name.ts";
import { LogReader } from "./log-reader.ts";
import { LogRepair, type LogSource } from "./log-repair.ts";
import { LogStore } from "./log-store.ts";
import type { LogStorePort } from "./log-thread/log-store-api.ts";
import { startLogStore } from "./log-thread/start-log-store.ts";
import { TaskArtifactsController } from "./task-artifacts.controller.ts";
import { TaskLogsController } from "./task-logs.controller.ts";
import { TaskSecrets } from "./task-secrets.ts";

/** Workers that are asked for one log. */
const MAX_ASKED_WORKERS = 16;

/** The logs that workers ship to this master, and the artifacts that it relays. */
@Module({
  controllers: [TaskLogsController, TaskArtifactsController],
  providers: [
    {
      provide: LogStore,
      inject: [MASTER_CONFIG, LOGGER],
      useFactory: ({ dataDirectory, taskLogs }: MasterConfig, log: Logger) =>
        startLogStore({ directory: join(dataDirectory, "task-logs"), ...taskLogs, log }),
    },
    {
      provide: TaskSecrets,
      inject: [PEPPER, CREDENTIALS, CONTROL_PLANE, ProjectSecrets],
      useFactory: openSecrets,
    },
    {
      provide: LogRepair,
      inject: [LogStore, CREDENTIALS, CONTROL_PLANE, NODE_DIRECTORY, LOGGER],
      useFactory: openRepair,
    },
    {
      provide: LogReader,
      inject: [LogStore, LogRepair, CONTROL_PLANE, NODE_DIRECTORY],
      useFactory: openReader,
    },
    {
      provide: ArtifactReader,
      inject: [CONTROL_PLANE, NODE_DIRECTORY, CREDENTIALS],
      useFactory: (control: ControlPlane, directory: NodeDirectory, credentials: NodeCredentials) =>
        new ArtifactReader({ control, directory, credentials }),
    },
  ],
  exports: [LogStore, LogReader, ArtifactReader, TaskSecrets],
})
export class TaskOutputModule implements OnApplicationShutdown {
  readonly #store: LogStorePort;

  constructor(@Inject(LogStore) store: LogStorePort) {
    this.#store = store;
  }

  onApplicationShutdown(): Promise<void> {
    return this.#store.close();
  }
}

function openSecrets(
  pepper: KeyObject,
  credentials: NodeCredentials,
  { group }: ControlPlane,
  secrets: ProjectSecrets,
): TaskSecrets {
  const cluster = () => group?.status().cluster ?? "";
  return new TaskSecrets(pepper, credentials, cluster, (spec) => secrets.variables(spec));
}

function openRepair(
  store: LogStorePort,
  credentials: NodeCredentials,
  control: ControlPlane,
  directory: NodeDirectory,
  log: Logger,
): LogRepair {
  const sources = (name: LogName) => sourcesOf(name, control, directory);
  return new LogRepair({ store, credentials, sources, log });
}

function openReader(
  store: LogStorePort,
  repair: LogRepair,
  control: ControlPlane,
  directory: NodeDirectory,
): LogReader {
  return new LogReader({
    store,
    repair,
    state: () => control.state,
    logTimeMs: () => control.logTimeMs ?? Date.now(),
    isAttached: (nodeId) =>
      directory.nodes().some(({ id, state }) => id === nodeId && state === "ready"),
  });
}

/** Sources for missing parts of a log: the other masters, then the task's worker. */
function sourcesOf(name: LogName, control: ControlPlane, directory: NodeDirectory): LogSource[] {
  const group = control.group?.status();
  const masters = group?.members.filter(({ id }) => id !== group.id) ?? [];
  const task = control.state.tasks.get(taskKey(name.jobId, name.attempt, name.rank));
  // The state no longer has the node of a replaced task, so all workers are candidates.
  const isPresent = (task?.incarnation ?? 0) === (name.incarnation ?? 0);
  const worker = directory
    .nodes()
    .filter(({ id, kind }) => (isPresent ? id === task?.nodeId : kind === "worker"))
    .slice(0, MAX_ASKED_WORKERS);
  return [
    ...masters.map(({ address }) => ({ address, role: "master" as const })),
    ...worker.map(({ address }) => ({ address, role: "worker" as const })),
  ];
}
