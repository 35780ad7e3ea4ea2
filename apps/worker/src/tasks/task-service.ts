import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { ServerWritableStream } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import { removeStaleSockets } from "@heddle/base/temporary-socket";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import type { LogChunk } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import type { LogRange__Output } from "@heddle/contracts/generated/heddle/v1/LogRange";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskStatus } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { Attachments } from "@heddle/node-agent/attachments";
import type { UserRange } from "@heddle/node-agent/offer-flags";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { FollowedCluster } from "@heddle/rpc/followed-cluster";
import type { TaskLog } from "@heddle/storage/task-log";
import type { ArtifactStore } from "../artifacts/artifact-store.ts";
import type { ArtifactReplica } from "../artifacts/replica.ts";
import { LogShipper, type ShippedLog } from "../logs/log-shipper.ts";
import type { TaskStreams } from "../logs/task-streams.ts";
import { type StreamName, TASK_STREAMS } from "../records/task-directory.ts";
import { checkedId } from "../records/task-plan.ts";
import { CheckpointCopies } from "./checkpoints/checkpoint-copies.ts";
import { ContainerExecutor } from "./containers/container-executor.ts";
import type { Executor } from "./executors/executor.ts";
import { Isolation, type IsolationLevel } from "./isolation/isolation.ts";
import { LeaseGuard } from "./leases/lease-guard.ts";
import { LeaseKeeper } from "./leases/lease-keeper.ts";
import { CgroupBranch } from "./processes/cgroup.ts";
import { ProcessExecutor } from "./processes/process-executor.ts";
import { TrainingExecutor } from "./processes/training-executor.ts";
import { Task } from "./task.ts";
import { type TaskSessionStream, TaskSessions } from "./task-sessions.ts";
import { TaskTable } from "./task-table.ts";

const DEFAULT_MAX_LOG_BYTES = 256 * 2 ** 20;
const PRUNE_EVERY_MS = 3_600_000;
/** How long a worker that ends waits until the masters know its tasks' ends. */
const MAX_FINAL_REPORT_MS = 1_500;
/** The leader logs progress more often than this. */
const FRESH_PROGRESS_MS = 15_000;
const READ_CHUNK_BYTES = 64 * 1024;
/** The most bytes of one call of Read. */
const MAX_READ_BYTES = 4 * 1024 * 1024;

export interface TaskServiceOptions {
  readonly dataDirectory: string;
  readonly nodeId: string;
  readonly nodeName: string;
  /** Of this program; for the lineage of artifacts. */
  readonly version: string;
  readonly masters: readonly string[];
  /** Which of them were removed from their group. */
  readonly removals: Pick<Attachments, "isRemoved" | "whileRemoved">;
  readonly credentials: NodeCredentials;
  readonly checkpointDirectory?: string | undefined;
  /** Files of plugins for training jobs; none where absent. */
  readonly plugins?: readonly string[] | undefined;
  readonly maxLogBytes?: number | undefined;
  readonly taskUsers?: UserRange | "own" | undefined;
  readonly isIsolationOptional?: boolean | undefined;
  readonly hiddenPaths?: readonly string[] | undefined;
  readonly secretPaths?: readonly string[] | undefined;
  readonly writablePaths?: readonly string[] | undefined;
  readonly artifacts: ArtifactStore;
  readonly followed: FollowedCluster;
  /** For second copies of checkpoints; larger ones than the bound have none. */
  readonly replica?: ArtifactReplica | undefined;
  readonly maxCopyBytes: number;
  gpus(): readonly Gpu[];
  readonly log: Log;
}

interface Opened {
  readonly table: TaskTable;
  readonly lease: LeaseKeeper;
  readonly executors: ReadonlyMap<string, Executor>;
  readonly isolation: IsolationLevel;
}

/** A worker's part in jobs: tasks, lease, sessions with leaders, and logs. */
export class TaskService {
  /** The isolation of its tasks, as reported to the masters. */
  readonly isolation: IsolationLevel;
  readonly #table: TaskTable;
  readonly #lease: LeaseKeeper;
  readonly #sessions: TaskSessions;
  readonly #executors: ReadonlyMap<string, Executor>;
  readonly #options: TaskServiceOptions;
  readonly #pruning: NodeJS.Timeout;
  readonly #shippers: readonly LogShipper[];
  /** Masters that have the whole of a log on disk, by the log. */
  readonly #shipped = new WeakMap<object, Set<string>>();
  /** The durable end of each log at each master, likewise. */
  readonly #durable = new WeakMap<object, Map<string, number>>();
  readonly #onExit = () => this.#table.killNow();

  private constructor(options: TaskServiceOptions, { table, lease, executors, isolation }: Opened) {
    this.#options = options;
    this.isolation = isolation;
    this.#pruning = setInterval(() => this.#prune(), PRUNE_EVERY_MS);
    this.#pruning.unref();
    this.#table = table;
    this.#lease = lease;
    this.#executors = executors;
    this.#sessions = new TaskSessions(table, lease, options.log);
    this.#shippers = this.#startShippers();
    table.onChange((task, what) => {
      if (what === "progress") return;
      if (task instanceof Task && what === "phase") this.#removeIfSafe(task);
      for (const shipper of this.#shippers) shipper.wake();
    });
    process.on("exit", this.#onExit);
  }

  /** `host`: this node's address for the other nodes. */
  static async open(options: TaskServiceOptions, host: string): Promise<TaskService> {
    const root = join(options.dataDirectory, "jobs");
    const checkpointRoot =
      options.checkpointDirectory ?? join(options.dataDirectory, "checkpoints");
    const isolation = await findIsolation(options, checkpointRoot);
    const branch = CgroupBranch.open(options.nodeId);
    const executors = await findExecutors(options, host, { branch, isolation });
    const lease = await LeaseKeeper.open(options.dataDirectory, options.followed);
    const containers = executors.get("container");
    const containerCli = containers instanceof ContainerExecutor ? containers.cli : "";
    const cgroup = branch?.path ?? "";
    const guarded = { nodeId: options.nodeId, cgroup, containerCli };
    lease.guardBy(new LeaseGuard({ ...guarded, ...lease.guardOrders }));
    const table = await TaskTable.open({
      root,
      checkpointRoot,
      copies:
        options.replica &&
        new CheckpointCopies(checkpointRoot, options.replica, options.maxCopyBytes),
      nodeId: options.nodeId,
      nodeName: options.nodeName,
      host,
      executors,
      lease,
      artifacts: options.artifacts,
      maxLogBytes: options.maxLogBytes ?? DEFAULT_MAX_LOG_BYTES,
      gpus: () =>
        options.gpus().map((gpu) => ({
          index: gpu.index ?? 0,
          simulated: gpu.simulated ?? false,
          fault: gpu.fault ?? "",
        })),
      log: options.log,
    });
    return new TaskService(options, { table, lease, executors, isolation: isolation.level });
  }

  /** The executors that this worker reports to the masters. */
  get executors(): string[] {
    return [...this.#executors.keys()];
  }

  /** Its training algorithms, likewise. */
  get algorithms(): string[] {
    return [...this.#executors.values()].flatMap(({ algorithms }) => algorithms ?? []);
  }

  /** By algorithm of a plugin: the JSON Schema of its config, as JSON. */
  get schemas(): Record<string, string> {
    const all = [...this.#executors.values()].map(({ schemas = {} }) => schemas);
    return Object.assign({}, ...all) as Record<string, string>;
  }

  /** The environments of their `ppo`. */
  get environments(): string[] {
    return [...this.#executors.values()].flatMap(({ environments }) => environments ?? []);
  }

  /** The progress of running tasks for heartbeats: the leader has logged older progress. */
  progress(): TaskStatus[] {
    return this.#table.progressSince(Date.now() - FRESH_PROGRESS_MS);
  }

  /** Why no leader runs tasks here; empty where one does, or none has connected. */
  get refusal(): string {
    return this.#sessions.refusal;
  }

  /** Serves a leader's stream of commands until it ends. */
  serveSession(stream: TaskSessionStream): void {
    this.#sessions.serve(stream);
  }

  #prune(): void {
    void removeStaleSockets();
    for (const task of this.#table.tasks()) task.copyAgain();
    const { artifacts, log } = this.#options;
    const tidied = artifacts.prune().then(() => artifacts.replicate());
    tidied.catch((error: unknown) => {
      log.warn({ error: String(error) }, "old artifacts could not be removed, or not copied");
    });
  }

  onGpuFault(gpu: Gpu): void {
    this.#table.onGpuFault(gpu.index ?? -1, gpu.fault ?? "");
  }

  /** Ends the tasks, reports that to the leader, and ships the rest of their logs. */
  async close(graceMs: number): Promise<void> {
    clearInterval(this.#pruning);
    await this.#table.close(graceMs);
    await this.#reported();
    this.#sessions.close();
    await Promise.all(this.#shippers.map((shipper) => shipper.close()));
    await this.#lease.close();
    // Processes that were killed with their worker could not remove their sockets, and none may
    // start here again.
    await removeStaleSockets();
    process.off("exit", this.#onExit);
  }

  /**
   * Resolves when the masters have every task's end and log, or soon where they are unreachable.
   */
  async #reported(): Promise<void> {
    const end = performance.now() + MAX_FINAL_REPORT_MS;
    const isDone = () => this.#table.statuses().length === 0 && this.#table.tasks().length === 0;
    while (this.#sessions.isOpen && !isDone() && performance.now() < end) await delay(20);
  }

  #startShippers(): LogShipper[] {
    const { masters, removals, credentials, nodeId, log } = this.#options;
    return masters.map(
      (master) =>
        new LogShipper({
          master,
          credentials,
          nodeId,
          logs: () => this.#logs(),
          onDurable: (id, stream, end) => this.#onDurable({ id, stream, end, master }),
          onShipped: (shipped) => this.#onShipped(shipped, master),
          whileRemoved: (signal) => removals.whileRemoved(master, signal),
          log,
        }),
    );
  }

  #logs(): ShippedLog[] {
    return this.#table.tasks().flatMap(({ plan, streams }) =>
      TASK_STREAMS.map((stream) => {
        // A master that has left the group since may be one that was waited for.
        this.#reportShipped(streams, stream);
        const { id, logGrant: grant = "" } = plan;
        return { id, grant, stream, log: streams.logs[stream] };
      }),
    );
  }

  #onDurable(durable: {
    readonly id: TaskId__Output;
    readonly stream: string;
    readonly end: number;
    readonly master: string;
  }): void {
    const { id, stream, end, master } = durable;
    const streams = this.#table.find(id)?.streams;
    const name = TASK_STREAMS.find((each) => each === stream);
    if (!streams || !name) return;
    const log = streams.logs[name];
    const ends = this.#durable.get(log) ?? new Map<string, number>();
    this.#durable.set(log, ends.set(master, Math.max(end, ends.get(master) ?? 0)));
    this.#reportShipped(streams, name);
  }

  #reportShipped(streams: TaskStreams, name: StreamName): void {
    const ends = this.#durable.get(streams.logs[name]);
    if (!ends) return;
    const { present, majority } = this.#masters();
    const sorted = present.map((each) => ends.get(each) ?? 0).sort((a, b) => b - a);
    streams.onShipped(name, sorted[majority - 1] ?? 0);
  }

  #onShipped({ id, log }: ShippedLog, master: string): void {
    const holders = this.#shipped.get(log) ?? new Set();
    this.#shipped.set(log, holders.add(master));
    const task = this.#table.find(id);
    if (task) this.#removeIfSafe(task);
  }

  /** The logs of a task stay here until a majority of the masters has them whole. */
  #removeIfSafe({ plan, streams }: Task): void {
    const { present, majority } = this.#masters();
    const holders = (each: TaskLog) =>
      present.filter((master) => this.#shipped.get(each)?.has(master)).length;
    if (Object.values(streams.logs).some((each) => holders(each) < majority)) return;
    this.#table.onLogsShipped(plan.id).catch((error: unknown) => {
      this.#options.log.warn({ error: String(error) }, "a task's logs could not be removed");
    });
  }

  /** The masters of the group, and the number of them that is a majority. */
  #masters(): { readonly present: readonly string[]; readonly majority: number } {
    const { masters, removals } = this.#options;
    const present = masters.filter((master) => !removals.isRemoved(master));
    return { present, majority: Math.floor(present.length / 2) + 1 };
  }

  /** Writes the requested part of a task's log. */
  async readLog(stream: ServerWritableStream<LogRange__Output, LogChunk>): Promise<void> {
    const { file, offset, maxBytes } = stream.request;
    const id = checkedId(file?.task);
    const name = TASK_STREAMS.find((each) => each === file?.stream);
    const log = name && this.#table.find(id)?.streams.logs[name];
    if (!log) throw new AppError("not_found", "this worker has no such log");
    let at = offset;
    for (let left = Math.min(maxBytes, MAX_READ_BYTES); left > 0 && !stream.cancelled; ) {
      const piece = await log.read(at, Math.min(left, READ_CHUNK_BYTES));
      const first = piece.offset > at ? piece.offset : 0;
      if (piece.data.byteLength === 0 && !piece.complete && first === 0) break;
      const { data, complete } = piece;
      stream.write({ file: { task: id, stream: name }, ...piece, times: [...piece.times], first });
      at = piece.offset + data.byteLength;
      left -= Math.max(1, data.byteLength);
      if (complete) break;
    }
  }
}

/** Logs the isolation, with what is missing and how to get it. */
async function findIsolation(
  options: TaskServiceOptions,
  checkpointRoot: string,
): Promise<Isolation> {
  const { log, dataDirectory, isIsolationOptional } = options;
  const { taskUsers, hiddenPaths = [], secretPaths = [], plugins: programs = [] } = options;
  const { writablePaths: writable } = options;
  const hidden = [...hiddenPaths, ...secretPaths];
  const how = { dataDirectory, checkpointRoot, taskUsers, hidden, writable, programs };
  const isolation = await Isolation.find(how);
  const { level, reasons } = isolation;
  const isRefused = level === "none" && isIsolationOptional !== true;
  if (isRefused) {
    const advice =
      "no job of processes or training comes to this worker: run it as root without `--task-users own`, or as another user on Linux 5.13 or newer with Landlock, or allow it with --task-isolation optional";
    log.warn({ isolation: level, reasons, advice }, "tasks could read this worker's secrets");
  } else if (reasons.length > 0) log.warn({ isolation: level, reasons }, "how tasks are isolated");
  else log.info({ isolation: level }, "how tasks are isolated");
  return isolation;
}

async function findExecutors(
  options: TaskServiceOptions,
  host: string,
  { branch, isolation }: { branch: CgroupBranch | undefined; isolation: Isolation },
): Promise<Map<string, Executor>> {
  const { nodeId, log } = options;
  log.info(CgroupBranch.words(branch), "how tasks are bounded");
  const processes = new ProcessExecutor(nodeId, branch, isolation);
  const isAllowed = isolation.level !== "none" || options.isIsolationOptional === true;
  const found: Executor[] = isAllowed ? [processes] : [];
  const [container, training] = await Promise.all([
    ContainerExecutor.find(nodeId, log),
    isAllowed
      ? TrainingExecutor.find(processes, {
          ...options,
          plugins: options.plugins ?? [],
          host,
          socketRoots: isolation.socketRoots,
        })
      : undefined,
  ]);
  if (training) found.push(training);
  if (container) {
    log.info({ cli: container.cli }, "containers can be run");
    found.push(container);
  }
  return new Map(found.map((executor) => [executor.name, executor]));
}
