import { restAfter } from "@heddle/base/async/rest";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { ForgetCheckpoints } from "@heddle/contracts/generated/heddle/v1/ForgetCheckpoints";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { GROUPS_REPORTS, versionOf } from "@heddle/control/cluster-version";
import type { ControlCommand } from "@heddle/control/command";
import type { TaskReportEntry, WorkerReport } from "@heddle/control/jobs/records/commands";
import type { TaskRecord } from "@heddle/control/jobs/records/records";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { isActiveLeader } from "../../control-plane/active-leader.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { NodeDirectory } from "../../nodes/node-directory.ts";
import { ownsTask } from "../../nodes/ownership.ts";
import type { ProgressBook } from "../../nodes/progress/progress-book.ts";
import type { TaskSecrets } from "../../task-output/task-secrets.ts";
import { LeaseHold } from "../scheduling/lease-hold.ts";
import { ChangedNodes } from "./changed-nodes.ts";
import { confirmedFailures } from "./confirmed-failures.ts";
import { expiredCheckpoints } from "./expired-checkpoints.ts";
import { NodeTasks, type TaskKeys } from "./node-tasks.ts";
import {
  type LeaderTerm,
  type LinkedWorker,
  type LinkOwner,
  recordKeyOf,
  statusKey,
  TaskLink,
} from "./task-link.ts";
import {
  commandForTask,
  commandForUnknownTask,
  isOfEarlierCluster,
  logEntriesOf,
  logEntryOf,
  missingTaskReport,
  statusDelta,
} from "./task-orders.ts";

/** The maximum interval between rounds, and the minimum pause after a change. */
const ROUND_MS = 250;
const PAUSE_MS = 5;
/** Between two rounds over all workers, which find what no change shows, as an order to repeat. */
const FULL_ROUND_MS = { least: 1_000, most: 10_000 };
/** Rounds over all workers may take this share of the time. */
const FULL_ROUND_SHARE = 1 / 20;
/** The wait after a failed proposal before the report is retried. */
const RETRY_MS = 500;
/** A report of a possibly lost node is awaited until its lease has expired, plus this margin. */
const STATUS_MARGIN_MS = 10_000;

/** A worker's tasks by their status keys; undefined for one without a record. */
type LinkedTasks = ReadonlyMap<string, TaskRecord | undefined>;

/** This master, as leader of its workers. */
export interface DispatchSettings {
  readonly masterId: string;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The leader's task controller: reconciles the desired state of each worker's tasks with its
 * reports, sends orders for the difference, and proposes the reports. It keeps no essential state:
 * a new leader opens its own sessions, and running tasks are not disturbed.
 */
export class TaskDispatch implements LinkOwner {
  readonly #settings: DispatchSettings;
  readonly #control: ControlPlane;
  readonly #directory: NodeDirectory;
  readonly #credentials: NodeCredentials;
  readonly #secrets: TaskSecrets;
  readonly #links = new Map<string, TaskLink>();
  /** Holds the workers' progress and the entries due for the log. */
  readonly #progress: ProgressBook;
  readonly #hold: LeaseHold;
  readonly #unsubscribe: () => void;
  readonly #timer: NodeJS.Timeout;
  /** Workers with a report being proposed, and the tasks to compare after it. */
  readonly #reporting = new NodeTasks();
  readonly #progressWrites = new SerialQueue();
  /** Jobs whose secrets could not be decrypted, as was logged. */
  readonly #unreadable = new Set<string>();
  #progressCheckedMs = 0;
  /** When, and in which term, the links were last compared with the nodes. */
  #aligned = { atMs: Number.NEGATIVE_INFINITY, term: 0 };
  #confirming = false;
  readonly #changed: ChangedNodes;
  #fullRoundDueMs = Number.NEGATIVE_INFINITY;
  /** Rounds may use at most a third of the time, however much there is to compare. */
  #pauseMs = PAUSE_MS;
  #roundQueued: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(
    settings: DispatchSettings,
    control: ControlPlane,
    directory: NodeDirectory,
    credentials: NodeCredentials,
    secrets: TaskSecrets,
    progress: ProgressBook,
  ) {
    this.#settings = settings;
    this.#control = control;
    this.#directory = directory;
    this.#credentials = credentials;
    this.#secrets = secrets;
    this.#progress = progress;
    this.#changed = new ChangedNodes(control);
    this.#hold = new LeaseHold(control, settings.clock, settings.leaseMs);
    this.#unsubscribe = control.onApplied((command) => {
      if (changesNodes(command)) this.#aligned.atMs = Number.NEGATIVE_INFINITY;
      this.#queueRound();
    });
    this.#timer = setInterval(() => this.#round(), ROUND_MS);
    this.#timer.unref();
  }

  close(): void {
    this.#closed = true;
    this.#unsubscribe();
    clearInterval(this.#timer);
    clearTimeout(this.#roundQueued);
    this.#closeLinks();
  }

  #queueRound(): void {
    if (this.#closed || this.#roundQueued) return;
    this.#roundQueued = setTimeout(() => {
      this.#roundQueued = undefined;
      this.#round();
    }, this.#pauseMs);
    this.#roundQueued.unref();
  }

  #round(): void {
    if (this.#closed) return;
    const { clock } = this.#settings;
    this.#progress.keepOnly((jobId) => this.#control.jobs.live.has(jobId));
    if (!isActiveLeader(this.#control)) {
      this.#unreadable.clear();
      this.#changed.clear();
      this.#closeLinks();
      return;
    }
    const startedMs = clock.monotonicMs();
    this.#alignLinks(startedMs);
    this.#compare(startedMs);
    void this.#confirmFailures();
    this.#pauseMs = Math.max(PAUSE_MS, restAfter(clock.monotonicMs() - startedMs, 2));
    if (clock.monotonicMs() - this.#progressCheckedMs < ROUND_MS) return;
    this.#progressCheckedMs = clock.monotonicMs();
    void this.#writeProgress(new Set());
  }

  /** Compares changed tasks, and at intervals those of all workers. */
  #compare(nowMs: number): void {
    const changed = this.#changed.take();
    const isFull = changed === undefined || nowMs >= this.#fullRoundDueMs;
    const reports: WorkerReport[] = [];
    const isHeld = this.#hold.leftMs !== undefined;
    for (const node of isFull ? this.#links.keys() : changed.keys()) {
      const keys = isFull ? "all" : (changed.get(node) ?? "all");
      const link = this.#links.get(node);
      if (!link?.isReady || !this.#hasTasks(link)) continue;
      const tasks = this.#tasksOf(link, keys);
      this.#order(link, tasks, isHeld);
      const entries = this.#reporting.has(node) ? [] : logEntryOf(this.#deltaOf(link, tasks));
      if (entries.length > 0) reports.push({ nodeId: node, reports: entries });
      if (entries.length > 0 || this.#reporting.has(node)) this.#reporting.add(node, keys);
    }
    const isGrouped = versionOf(this.#control.state) >= GROUPS_REPORTS;
    const groups = isGrouped ? logEntriesOf(reports) : reports.map((report) => [report]);
    for (const group of groups) void this.#report(group);
    if (!isFull) return;
    const endMs = this.#settings.clock.monotonicMs();
    const { least, most } = FULL_ROUND_MS;
    // This process may have been paused in the round.
    const pauseMs = Math.min(most, Math.max(least, (endMs - nowMs) / FULL_ROUND_SHARE));
    this.#fullRoundDueMs = endMs + pauseMs;
  }

  /** Whether the worker or the state knows of any: many have none. */
  #hasTasks({ node, statuses }: TaskLink): boolean {
    return statuses.size > 0 || this.#control.jobs.tasksByNode.has(node);
  }

  /**
   * Opens one session per attached worker in this leader's term. Between changes of nodes it checks
   * them at intervals, not at each change of a task.
   */
  #alignLinks(nowMs: number): void {
    const { masterId, leaseMs, log } = this.#settings;
    const { term = 1, cluster = "" } = this.#control.group?.status() ?? {};
    if (term === this.#aligned.term && nowMs - this.#aligned.atMs < ROUND_MS) return;
    this.#aligned = { atMs: nowMs, term };
    const leader: LeaderTerm = { masterId, term, cluster, leaseMs };
    // Reports from before a node's loss do not count: its return starts a new session.
    const isLost = (id: string) => (this.#control.state.nodes.get(id)?.state ?? "lost") === "lost";
    // A worker that refuses the leader is lost too; its session is retried until it accepts.
    const workers = this.#directory
      .nodes()
      .filter(({ id, kind, refusesLeader }) => kind === "worker" && (!isLost(id) || refusesLeader));
    const addresses = new Map(workers.map(({ id, address }) => [id, address]));
    for (const [node, link] of this.#links) {
      // A detached worker may still have an open session, to stop its tasks in order.
      const isSpokenTo = link.isReady && !isLost(node);
      const address = addresses.get(node) ?? (isSpokenTo ? link.worker.address : undefined);
      if (address === link.worker.address && link.leader.term === term) continue;
      link.close();
      this.#links.delete(node);
    }
    for (const [node, address] of addresses) {
      if (this.#links.has(node)) continue;
      const link = new TaskLink({ node, address }, leader, this, this.#credentials, log);
      this.#links.set(node, link);
    }
  }

  /** Once a node counts as lost, its leases must expire. */
  mayRenew({ node }: LinkedWorker, { term }: LeaderTerm): boolean {
    const record = this.#control.state.nodes.get(node);
    const isTerm = (this.#control.group?.status().term ?? 1) === term;
    return (
      isActiveLeader(this.#control) && isTerm && record !== undefined && record.state !== "lost"
    );
  }

  onReport({ node }: LinkedWorker, key?: string): void {
    if (key === undefined) this.#changed.add(node);
    else this.#changed.addTask(node, key);
    this.#queueRound();
  }

  onProgress({ node }: LinkedWorker, status: TaskStatus__Output): void {
    const isOwn = status.task && ownsTask(this.#control.state, node, status.task);
    if (isOwn) this.#progress.take(status);
  }

  expiredCheckpoints(jobIds: readonly string[]): ForgetCheckpoints | undefined {
    return expiredCheckpoints(this.#control.state, jobIds, this.#settings.clock.wallMs());
  }

  /** Orders the worker to reach the desired state. */
  #order(link: TaskLink, tasks: LinkedTasks, isHeld: boolean): void {
    const { clock } = this.#settings;
    const wallMs = clock.wallMs();
    const nowMs = clock.monotonicMs();
    for (const [key, record] of tasks) {
      const status = link.statuses.get(key);
      const command = record
        ? this.#commandFor(record, status, wallMs)
        : status && commandForUnknownTask(status);
      if (isHeld && (command?.lease || command?.start)) continue;
      if (!command) link.settle(key);
      else if (!link.order(key, command, nowMs)) this.#changed.addTask(link.node, key);
      else if (command.forget) link.forget(key);
    }
  }

  /** A task whose secrets do not decrypt waits; others start. */
  #commandFor(record: TaskRecord, status: TaskStatus__Output | undefined, wallMs: number) {
    const { jobId } = record;
    try {
      const command = commandForTask(this.#control.state, record, status, wallMs, this.#secrets);
      this.#unreadable.delete(jobId);
      return command;
    } catch (error) {
      const why = toAppError(error).message;
      if (!this.#unreadable.has(jobId)) {
        this.#settings.log.error({ job: jobId, why }, "a job waits: its secrets cannot be read");
      }
      this.#unreadable.add(jobId);
      return undefined;
    }
  }

  /** Proposes what is new of some workers, of each in one command at a time. */
  async #report(group: readonly WorkerReport[]): Promise<void> {
    const [first, ...others] = group;
    if (!first) return;
    const { clock, log, leaseMs } = this.#settings;
    const settle = () => {
      for (const { nodeId } of group) this.#changed.add(nodeId, this.#reporting.take(nodeId));
      this.#queueRound();
    };
    try {
      // The checkpoint for the next attempt must be logged before this one ends.
      const entries = group.flatMap(({ reports }) => reports);
      const ended = new Set(entries.filter(({ phase }) => phase === "exited").map(jobIdOf));
      if (ended.size > 0) await this.#writeProgress(ended);
      await propose(this.#control, {
        type: "tasks.report",
        atMs: clock.wallMs(),
        ...first,
        ...(others.length > 0 && { others }),
        statusTimeoutMs: leaseMs + STATUS_MARGIN_MS,
      });
      settle();
    } catch (error) {
      const nodes = group.map(({ nodeId }) => nodeId);
      log.warn({ nodes, error: toAppError(error).message }, "tasks: reporting again");
      setTimeout(settle, RETRY_MS).unref();
    }
  }

  /** Confirms failures whose other nodes have reported since. */
  async #confirmFailures(): Promise<void> {
    const { clock, log } = this.#settings;
    if (this.#confirming || this.#control.jobs.suspected.size === 0) return;
    const views = new Map(this.#directory.nodes().map((view) => [view.id, view]));
    const entries = confirmedFailures(this.#control, (nodeId) => {
      const link = this.#links.get(nodeId);
      if (!link?.isReady) return undefined;
      const tasks = this.#tasksOf(link, "all");
      // Its pending reports are proposed first.
      const isReported = this.#deltaOf(link, tasks).next().done;
      return isReported ? views.get(nodeId)?.lastSeenMs : undefined;
    });
    if (entries.length === 0) return;
    this.#confirming = true;
    try {
      await propose(this.#control, { type: "jobs.confirmFailures", atMs: clock.wallMs(), entries });
    } catch (error) {
      log.warn({ error: toAppError(error).message }, "confirming failures of jobs: trying again");
    }
    this.#confirming = false;
  }

  /**
   * Tasks of a worker: those of the state, and those that only the worker knows, without a record.
   */
  #tasksOf({ node, statuses, leader }: TaskLink, keys: TaskKeys): LinkedTasks {
    const { state, jobs } = this.#control;
    const tasks = new Map<string, TaskRecord | undefined>();
    const add = (key: string, record: TaskRecord | undefined) => {
      const status = statuses.get(key);
      const isOwn = record?.nodeId === node && statusKey(record) === key;
      const own = isOwn ? record : undefined;
      const isLive = own !== undefined && own.phase !== "exited";
      if (!isLive && !status) return;
      const isUnknown = own && isOfEarlierCluster(own, status, leader.cluster);
      tasks.set(key, isUnknown ? undefined : own);
    };
    if (keys !== "all") {
      for (const key of keys) add(key, state.tasks.get(recordKeyOf(key)));
      return tasks;
    }
    for (const recordKey of jobs.tasksByNode.get(node) ?? []) {
      const record = state.tasks.get(recordKey);
      if (record) add(statusKey(record), record);
    }
    for (const key of statuses.keys()) {
      if (!tasks.has(key)) add(key, state.tasks.get(recordKeyOf(key)));
    }
    return tasks;
  }

  /** What the worker has reported and the log lacks. */
  *#deltaOf(link: TaskLink, tasks: LinkedTasks): Generator<TaskReportEntry, void> {
    const { clock } = this.#settings;
    for (const [key, record] of tasks) {
      if (!record) continue;
      const status = link.statuses.get(key);
      const entry = status
        ? statusDelta(record, status)
        : missingTaskReport(record, clock.wallMs());
      if (entry) yield entry;
    }
  }

  /** Proposes due and urgent progress, one command at a time. */
  #writeProgress(urgent: ReadonlySet<string>): Promise<void> {
    return this.#progressWrites.run(async () => {
      const { clock, log } = this.#settings;
      const entries = this.#progress.due(clock.monotonicMs(), urgent);
      if (entries.length === 0 || this.#closed) return;
      try {
        await propose(this.#control, { type: "jobs.progress", atMs: clock.wallMs(), entries });
        this.#progress.written(entries, clock.monotonicMs());
      } catch (error) {
        log.warn({ error: toAppError(error).message }, "progress was not put into the log");
      }
    });
  }

  #closeLinks(): void {
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
    this.#aligned.atMs = Number.NEGATIVE_INFINITY;
    this.#fullRoundDueMs = Number.NEGATIVE_INFINITY;
  }
}

/** Undefined: the state was replaced. */
function changesNodes(command: ControlCommand | undefined): boolean {
  return command === undefined || command.type.startsWith("node.");
}

function jobIdOf({ jobId }: TaskReportEntry): string {
  return jobId;
}
