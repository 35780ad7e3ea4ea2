import { SerialQueue } from "@heddle/base/async/serial-queue";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { TaskReportEntry } from "@heddle/control/jobs/records/commands";
import { type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { NodeDirectory } from "../../nodes/node-directory.ts";
import { ownsTask } from "../../nodes/ownership.ts";
import type { ProgressBook } from "../../nodes/progress/progress-book.ts";
import type { TaskSecrets } from "../../task-output/task-secrets.ts";
import { LeaseHold } from "../scheduling/lease-hold.ts";
import { confirmedFailures } from "./confirmed-failures.ts";
import { expiredCheckpoints } from "./expired-checkpoints.ts";
import { statusKey, TaskLink } from "./task-link.ts";
import {
  commandForTask,
  commandForUnknownTask,
  isOfEarlierCluster,
  missingTaskReport,
  statusDelta,
} from "./task-orders.ts";

/** The maximum interval between rounds, and the minimum pause after a change. */
const ROUND_MS = 250;
const PAUSE_MS = 5;
/** Maximum entries per command of one worker's report. */
const MAX_ENTRIES = 256;
/** The wait after a failed proposal before the report is retried. */
const RETRY_MS = 500;
/** A report of a possibly lost node is awaited until its lease has expired, plus this margin. */
const STATUS_MARGIN_MS = 10_000;

export interface TaskDispatchOptions {
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly credentials: NodeCredentials;
  readonly masterId: string;
  readonly secrets: TaskSecrets;
  readonly clock: Clock;
  readonly log: Log;
  readonly leaseMs: number;
  /** Holds the workers' progress and the entries due for the log. */
  readonly progress: ProgressBook;
  /** Whether this master is the active leader. */
  isActiveLeader(): boolean;
}

/**
 * The leader's task controller: reconciles the desired state of each worker's tasks with its
 * reports, sends orders for the difference, and proposes the reports. It keeps no essential state:
 * a new leader opens its own sessions, and running tasks are not disturbed.
 */
export class TaskDispatch {
  readonly #options: TaskDispatchOptions;
  readonly #links = new Map<string, TaskLink>();
  readonly #progress: ProgressBook;
  readonly #hold: LeaseHold;
  readonly #unsubscribe: () => void;
  readonly #timer: NodeJS.Timeout;
  /** Workers with a report being proposed. */
  readonly #reporting = new Set<string>();
  readonly #progressWrites = new SerialQueue();
  #progressLookedMs = 0;
  #confirming = false;
  /** Rounds may use at most a third of the time, however much there is to compare. */
  #pauseMs = PAUSE_MS;
  #roundQueued: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: TaskDispatchOptions) {
    this.#options = options;
    this.#progress = options.progress;
    this.#hold = new LeaseHold(options.control, options.clock, options.leaseMs);
    this.#unsubscribe = options.control.onApplied(() => this.#queueRound());
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
    const { control, clock } = this.#options;
    this.#progress.keepOnly((jobId) => control.jobs.live.has(jobId));
    if (!this.#options.isActiveLeader()) {
      this.#closeLinks();
      return;
    }
    const startedMs = clock.monotonicMs();
    this.#alignLinks();
    for (const link of this.#links.values()) {
      if (!link.isReady) continue;
      this.#order(link);
      void this.#report(link);
    }
    void this.#confirmFailures();
    this.#pauseMs = Math.max(PAUSE_MS, 2 * (clock.monotonicMs() - startedMs));
    if (clock.monotonicMs() - this.#progressLookedMs < ROUND_MS) return;
    this.#progressLookedMs = clock.monotonicMs();
    void this.#writeProgress(new Set());
  }

  /** Opens one session per attached worker in this leader's term. */
  #alignLinks(): void {
    const { control, directory, credentials, masterId, leaseMs, log } = this.#options;
    const { term = 1, cluster = "" } = control.group?.status() ?? {};
    // Reports from before a node's loss do not count: its return starts a new session.
    const isLost = (id: string) => (control.state.nodes.get(id)?.state ?? "lost") === "lost";
    // A worker that refuses the leader is lost too; its session is retried until it accepts.
    const workers = directory
      .nodes()
      .filter(({ id, kind, refusesLeader }) => kind === "worker" && (!isLost(id) || refusesLeader));
    const addresses = new Map(workers.map(({ id, address }) => [id, address]));
    for (const [node, link] of this.#links) {
      // A detached worker may still have an open session, to stop its tasks in order.
      const isSpokenTo = link.isReady && !isLost(node);
      const address = addresses.get(node) ?? (isSpokenTo ? link.address : undefined);
      if (address === link.address && link.term === term) continue;
      link.close();
      this.#links.delete(node);
    }
    for (const [node, address] of addresses) {
      if (this.#links.has(node)) continue;
      const link = new TaskLink({
        node,
        address,
        credentials,
        masterId,
        term,
        cluster,
        leaseMs,
        log,
        mayRenew: () => this.#mayRenew(node, term),
        onReport: () => this.#queueRound(),
        onProgress: (status) => {
          if (status.task && ownsTask(control.state, node, status.task))
            this.#progress.take(status);
        },
        expiredCheckpoints: (jobIds) =>
          expiredCheckpoints(control.state, jobIds, this.#options.clock.wallMs()),
      });
      this.#links.set(node, link);
    }
  }

  /** Once a node counts as lost, its leases must expire. */
  #mayRenew(node: string, term: number): boolean {
    const { control, isActiveLeader } = this.#options;
    const record = control.state.nodes.get(node);
    const isTerm = (control.group?.status().term ?? 1) === term;
    return isActiveLeader() && isTerm && record !== undefined && record.state !== "lost";
  }

  /** Orders the worker to reach the desired state. */
  #order(link: TaskLink): void {
    const { control, clock, secrets } = this.#options;
    const { state } = control;
    const wallMs = clock.wallMs();
    const nowMs = clock.monotonicMs();
    const isHeld = this.#hold.untilMs !== undefined;
    for (const [key, record] of this.#tasksOf(link)) {
      const status = link.statuses.get(key);
      const command = record
        ? commandForTask(state, record, status, wallMs, secrets)
        : status && commandForUnknownTask(status);
      if (isHeld && (command?.lease || command?.start)) continue;
      if (command) link.order(key, command, nowMs);
      else link.settle(key);
      if (command?.forget) link.forget(key);
    }
  }

  /** Proposes what is new in the worker's reports, one command at a time. */
  async #report(link: TaskLink): Promise<void> {
    if (this.#reporting.has(link.node)) return;
    const { control, clock, log } = this.#options;
    const entries = this.#deltaOf(link);
    if (entries.length === 0) return;
    this.#reporting.add(link.node);
    try {
      // The checkpoint for the next attempt must be logged before this one ends.
      const ended = new Set(entries.filter(({ phase }) => phase === "exited").map(jobIdOf));
      if (ended.size > 0) await this.#writeProgress(ended);
      const { node: nodeId } = link;
      await propose(control, {
        type: "tasks.report",
        atMs: clock.wallMs(),
        nodeId,
        reports: entries,
        statusTimeoutMs: this.#options.leaseMs + STATUS_MARGIN_MS,
      });
      this.#reporting.delete(link.node);
      this.#queueRound();
    } catch (error) {
      log.warn({ node: link.node, error: toAppError(error).message }, "tasks: reporting again");
      setTimeout(() => this.#reporting.delete(link.node), RETRY_MS).unref();
    }
  }

  /** Confirms failures whose other nodes have reported since. */
  async #confirmFailures(): Promise<void> {
    const { control, clock, directory, log } = this.#options;
    if (this.#confirming || control.jobs.suspected.size === 0) return;
    const views = new Map(directory.nodes().map((view) => [view.id, view]));
    const entries = confirmedFailures(control, (nodeId) => {
      const link = this.#links.get(nodeId);
      // Its pending reports are proposed first.
      if (!link?.isReady || this.#deltaOf(link).length > 0) return undefined;
      return views.get(nodeId)?.lastSeenMs;
    });
    if (entries.length === 0) return;
    this.#confirming = true;
    try {
      await propose(control, { type: "jobs.confirmFailures", atMs: clock.wallMs(), entries });
    } catch (error) {
      log.warn({ error: toAppError(error).message }, "confirming failures of jobs: trying again");
    }
    this.#confirming = false;
  }

  /**
   * A worker's tasks: those of the state, and those that only the worker knows, without a record.
   */
  #tasksOf({ node, statuses, cluster }: TaskLink): Map<string, TaskRecord | undefined> {
    const { state, jobs } = this.#options.control;
    const tasks = new Map<string, TaskRecord | undefined>();
    for (const recordKey of jobs.tasksByNode.get(node) ?? []) {
      const record = state.tasks.get(recordKey);
      if (record?.nodeId !== node) continue;
      const key = statusKey(record);
      const isUnknown = isOfEarlierCluster(record, statuses.get(key), cluster);
      tasks.set(key, isUnknown ? undefined : record);
    }
    for (const [key, { task }] of statuses) {
      if (tasks.has(key) || !task) continue;
      const record = state.tasks.get(taskKey(task.jobId, task.attempt, task.rank));
      const isSame = record?.nodeId === node && statusKey(record) === key;
      tasks.set(key, isSame ? record : undefined);
    }
    return tasks;
  }

  #deltaOf(link: TaskLink): TaskReportEntry[] {
    const { clock } = this.#options;
    const entries: TaskReportEntry[] = [];
    for (const [key, record] of this.#tasksOf(link)) {
      if (!record) continue;
      const status = link.statuses.get(key);
      const entry = status
        ? statusDelta(record, status)
        : missingTaskReport(record, clock.wallMs());
      if (entry) entries.push(entry);
      if (entries.length >= MAX_ENTRIES) break;
    }
    return entries;
  }

  /** Proposes due and urgent progress, one command at a time. */
  #writeProgress(urgent: ReadonlySet<string>): Promise<void> {
    return this.#progressWrites.run(async () => {
      const { control, clock, log } = this.#options;
      const entries = this.#progress.due(clock.monotonicMs(), urgent);
      if (entries.length === 0 || this.#closed) return;
      try {
        await propose(control, { type: "jobs.progress", atMs: clock.wallMs(), entries });
        this.#progress.written(entries, clock.monotonicMs());
      } catch (error) {
        log.warn({ error: toAppError(error).message }, "progress was not put into the log");
      }
    });
  }

  #closeLinks(): void {
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
  }
}

function jobIdOf({ jobId }: TaskReportEntry): string {
  return jobId;
}
