import { join } from "node:path";
import type { Server } from "@grpc/grpc-js";
import { systemClock } from "@heddle/base/clock";
import { taskKey } from "@heddle/control/jobs/records/records";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { isActiveLeader } from "../../control-plane/active-leader.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { NodeDirectory } from "../../nodes/node-directory.ts";
import { ArtifactReader } from "../../task-output/artifact-reader.ts";
import { ArtifactRelay } from "../../task-output/artifact-relay.ts";
import type { LogName } from "../../task-output/log-name.ts";
import { LogReader } from "../../task-output/log-reader.ts";
import { LogRepair, type LogSource } from "../../task-output/log-repair.ts";
import { LogService } from "../../task-output/log-service.ts";
import { LogStore } from "../../task-output/log-store.ts";
import { TaskSecrets } from "../../task-output/task-secrets.ts";
import { LeaderLoop } from "../leader-loop.ts";
import { ShardRelease } from "../training/shard-release.ts";
import { registerTrainedModels } from "../training/trained-models.ts";
import { CheckpointRelease } from "./checkpoint-release.ts";
import { LostWorkers } from "./lost-workers.ts";
import type { ProgressBook } from "./progress-book.ts";
import { TaskDispatch } from "./task-dispatch.ts";

const registerPauseMs = 50;
const releasePauseMs = 250;
/** Workers that are asked for one log. */
const maxAskedWorkers = 16;
/** Delay after a job's end, so that jobs that end together are handled together. */
const forgetPauseMs = 1_000;
/** Commands that may change which jobs hold shards. */
const MOVES_SHARDS: ReadonlySet<string> = new Set([
  "plan.commit",
  "tasks.report",
  "jobs.judge",
  "job.request",
  "node.lost",
  "server.lost",
  "clock.tick",
]);

export interface TaskControllersOptions {
  /** The server for the workers' logs; it stays open when this closes. */
  readonly server: Server;
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly credentials: NodeCredentials;
  readonly masterId: string;
  /** The secret that only the masters share. */
  readonly pepper: Uint8Array;
  readonly dataDirectory: string;
  readonly leaseMs: number;
  readonly progress: ProgressBook;
  /** Bounds of this master's task logs. */
  readonly taskLogs: { readonly maxBytes: number; readonly maxAgeMs: number };
  readonly logger: Log;
}

export interface TaskControllers {
  readonly dispatch: TaskDispatch;
  readonly logs: LogReader;
  readonly artifacts: ArtifactReader;
  close(): Promise<void>;
}

/** The master's side of running tasks: sessions with workers, and the logs that they ship. */
export function startTaskControllers(options: TaskControllersOptions): TaskControllers {
  const { control, directory, credentials, logger: log } = options;
  const logDirectory = join(options.dataDirectory, "task-logs");
  const store = new LogStore({ directory: logDirectory, ...options.taskLogs, log });
  const cluster = () => control.group?.status().cluster ?? "";
  const secrets = new TaskSecrets(options.pepper, credentials, cluster);
  new LogService({ server: options.server, store, secrets, state: () => control.state });
  const sources = (name: LogName) => sourcesOf(name, control, directory);
  const repair = new LogRepair({ store, credentials, sources, log });
  const logs = new LogReader({
    store,
    repair,
    state: () => control.state,
    isAttached: (nodeId) =>
      directory.nodes().some(({ id, state }) => id === nodeId && state === "ready"),
  });
  const artifacts = new ArtifactReader({ control, directory, credentials });
  new ArtifactRelay(options.server, artifacts, () => control.state);
  const dispatch = new TaskDispatch({
    ...{ control, directory, credentials, log, progress: options.progress },
    masterId: options.masterId,
    secrets,
    leaseMs: options.leaseMs,
    clock: systemClock,
    leads: () => isActiveLeader(control),
  });
  const registering = new LeaderLoop({
    ...{ control, log, clock: systemClock, name: "registering models", pauseMs: registerPauseMs },
    concerns: (command) => command === undefined || command.type === "tasks.report",
    step: () => registerTrainedModels({ control, artifacts, clock: systemClock, log }),
  });
  const checkpoints = new CheckpointRelease({ control, credentials, log });
  const forgetting = new LeaderLoop({
    ...{ control, log, clock: systemClock, name: "deleting checkpoints", pauseMs: forgetPauseMs },
    concerns: (command) => command === undefined,
    step: () => checkpoints.step(systemClock.wallMs()),
  });
  const onFreed = () => forgetting.poke();
  const release = new ShardRelease({ control, credentials, log, onFreed, clock: systemClock });
  const releasing = new LeaderLoop({
    ...{ control, log, clock: systemClock, name: "freeing shards", pauseMs: releasePauseMs },
    concerns: (command) => command === undefined || MOVES_SHARDS.has(command.type),
    step: () => release.step(),
  });
  const lost = new LostWorkers({ control, credentials, log, clock: systemClock });
  const letting = new LeaderLoop({
    ...{ control, log, clock: systemClock, name: "releasing lost tasks", pauseMs: releasePauseMs },
    concerns: (command) => command === undefined || MOVES_SHARDS.has(command.type),
    step: () => lost.step(),
  });
  const close = async () => {
    letting.close();
    registering.close();
    releasing.close();
    forgetting.close();
    dispatch.close();
    await store.close();
  };
  return { dispatch, logs, artifacts, close };
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
    .slice(0, maxAskedWorkers);
  return [
    ...masters.map(({ address }) => ({ address, role: "master" as const })),
    ...worker.map(({ address }) => ({ address, role: "worker" as const })),
  ];
}
