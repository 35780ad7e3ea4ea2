import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type { TaskReportEntry } from "@heddle/control/jobs/records/commands";
import { type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import type { NodeDirectory } from "../../nodes/node-directory.ts";
import { ownsTask } from "../../nodes/ownership.ts";
import type { TaskSecrets } from "../../task-output/task-secrets.ts";
import { LeaseHold } from "../scheduling/lease-hold.ts";
import { confirmedFailures } from "./confirmed-failures.ts";
import { expiredCheckpoints } from "./expired-checkpoints.ts";
import type { ProgressBook } from "./progress-book.ts";
import { statusKey, TaskLink } from "./task-link.ts";
import {
  commandForTask,
  commandForUnknownTask,
  isOfEarlierCluster,
  missingTaskReport,
  statusDelta,
} from "./task-orders.ts";

/** Rounds come at least so often, and after a change no sooner than this. */
const roundMs = 250;
const pauseMs = 5;
/** What one worker says goes into the log in commands of so many entries. */
const maxEntries = 256;
/** After a proposal that failed, a worker's word waits so long. */
const retryMs = 500;
/** Word of a node that may be lost is waited for until its lease is over, and a little longer. */
const wordMarginMs = 10_000;

export interface TaskDispatchOptions {
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly credentials: NodeCredentials;
  readonly masterId: string;
  readonly secrets: TaskSecrets;
  readonly clock: Clock;
  readonly log: NodeLog;
  readonly leaseMs: number;
  /** Where workers' words of progress are kept, and what is due for the log. */
  readonly progress: ProgressBook;
  /** Whether this master acts for the group now. */
  leads(): boolean;
}

/**
 * The leader's hands: holds what the state wants of each worker's tasks against what the worker
 * says, tells it what differs, and puts its word into the log. It keeps nothing that matters: a new
 * leader opens its own sessions, and running tasks are not disturbed.
 */
export class TaskDispatch {
  readonly #options: TaskDispatchOptions;
  readonly #links = new Map<string, TaskLink>();
  readonly #progress: ProgressBook;
  readonly #hold: LeaseHold;
  readonly #unsubscribe: () => void;
  readonly #timer: NodeJS.Timeout;
  /** Workers whose word is on its way into the log. */
  readonly #reporting = new Set<string>();
  #progressWritten: Promise<void> = Promise.resolve();
  #progressLookedMs = 0;
  #judging = false;
  /** At most a third of the time goes to rounds, however much there is to compare. */
  #pauseMs = pauseMs;
  #roundQueued: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: TaskDispatchOptions) {
    this.#options = options;
    this.#progress = options.progress;
    this.#hold = new LeaseHold(options.control, options.clock, options.leaseMs);
    this.#unsubscribe = options.control.onApplied(() => this.#queueRound());
    this.#timer = setInterval(() => this.#round(), roundMs);
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
    if (!this.#options.leads()) {
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
    void this.#judge();
    this.#pauseMs = Math.max(pauseMs, 2 * (clock.monotonicMs() - startedMs));
    if (clock.monotonicMs() - this.#progressLookedMs < roundMs) return;
    this.#progressLookedMs = clock.monotonicMs();
    void this.#writeProgress(new Set());
  }

  /** One session with each attached worker, of this leader's term. */
  #alignLinks(): void {
    const { control, directory, credentials, masterId, leaseMs, log } = this.#options;
    const { term = 1, cluster = "" } = control.group?.status() ?? {};
    // What a node said before it was lost counts no more: when it is back, it is asked anew.
    const isLost = (id: string) => (control.state.nodes.get(id)?.state ?? "lost") === "lost";
    // One that refuses the leader is lost by that, and asked on until it lets it in.
    const workers = directory
      .nodes()
      .filter(({ id, kind, refusesLeader }) => kind === "worker" && (!isLost(id) || refusesLeader));
    const addresses = new Map(workers.map(({ id, address }) => [id, address]));
    for (const [node, link] of this.#links) {
      // A worker that is not attached may still be spoken to, and leave its tasks in order.
      const isSpokenTo = link.isReady && !isLost(node);
      const address = addresses.get(node) ?? (isSpokenTo ? link.address : undefined);
      if (address === link.address && link.term === term) continue;
      link.close();
      this.#links.delete(node);
    }
    for (const [node, address] of addresses) {
      if (this.#links.has(node)) continue;
      const link = new TaskLink({
        ...{ node, address, credentials, masterId, term, cluster, leaseMs, log },
        mayRenew: () => this.#mayRenew(node, term),
        onReport: () => this.#queueRound(),
        onProgress: (status) => {
          if (status.task && ownsTask(control.state, node, status.task))
            this.#progress.take(status);
        },
        checkpointsOver: (jobIds) =>
          expiredCheckpoints(control.state, jobIds, this.#options.clock.wallMs()),
      });
      this.#links.set(node, link);
    }
  }

  /** From the moment at which a node is held for lost, its leases must run out. */
  #mayRenew(node: string, term: number): boolean {
    const { control, leads } = this.#options;
    const record = control.state.nodes.get(node);
    const isTerm = (control.group?.status().term ?? 1) === term;
    return leads() && isTerm && record !== undefined && record.state !== "lost";
  }

  /** Tells the worker what the state wants otherwise. */
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

  /** Puts what is new of the worker's word into the log, one command at a time. */
  async #report(link: TaskLink): Promise<void> {
    if (this.#reporting.has(link.node)) return;
    const { control, clock, log } = this.#options;
    const entries = this.#newsOf(link);
    if (entries.length === 0) return;
    this.#reporting.add(link.node);
    try {
      // What the next attempt resumes from has to be known before this one is over.
      const ended = new Set(entries.filter(({ phase }) => phase === "exited").map(jobIdOf));
      if (ended.size > 0) await this.#writeProgress(ended);
      const { node: nodeId } = link;
      await propose(control, {
        type: "tasks.report",
        atMs: clock.wallMs(),
        nodeId,
        reports: entries,
        wordMs: this.#options.leaseMs + wordMarginMs,
      });
      this.#reporting.delete(link.node);
      this.#queueRound();
    } catch (error) {
      log.warn({ node: link.node, error: toAppError(error).message }, "tasks: reporting again");
      setTimeout(() => this.#reporting.delete(link.node), retryMs).unref();
    }
  }

  /** Has failures stand for which the nodes of the other tasks were waited. */
  async #judge(): Promise<void> {
    const { control, clock, directory, log } = this.#options;
    if (this.#judging || control.jobs.suspected.size === 0) return;
    const views = new Map(directory.nodes().map((view) => [view.id, view]));
    const entries = confirmedFailures(control, (nodeId) => {
      const link = this.#links.get(nodeId);
      // What it has said comes into the log first.
      if (!link?.isReady || this.#newsOf(link).length > 0) return undefined;
      return views.get(nodeId)?.lastSeenMs;
    });
    if (entries.length === 0) return;
    this.#judging = true;
    try {
      await propose(control, { type: "jobs.judge", atMs: clock.wallMs(), entries });
    } catch (error) {
      log.warn({ error: toAppError(error).message }, "failures of jobs are judged again");
    }
    this.#judging = false;
  }

  /** The tasks of a worker: those of the state, and those that only the worker knows, without a record. */
  #tasksOf({ node, statuses, cluster }: TaskLink): Map<string, TaskRecord | undefined> {
    const { state, jobs } = this.#options.control;
    const tasks = new Map<string, TaskRecord | undefined>();
    for (const recordKey of jobs.tasksByNode.get(node) ?? []) {
      const record = state.tasks.get(recordKey);
      if (record?.nodeId !== node) continue;
      const key = statusKey(record);
      const isStranger = isOfEarlierCluster(record, statuses.get(key), cluster);
      tasks.set(key, isStranger ? undefined : record);
    }
    for (const [key, { task }] of statuses) {
      if (tasks.has(key) || !task) continue;
      const record = state.tasks.get(taskKey(task.jobId, task.attempt, task.rank));
      const isSame = record?.nodeId === node && statusKey(record) === key;
      tasks.set(key, isSame ? record : undefined);
    }
    return tasks;
  }

  #newsOf(link: TaskLink): TaskReportEntry[] {
    const { clock } = this.#options;
    const entries: TaskReportEntry[] = [];
    for (const [key, record] of this.#tasksOf(link)) {
      if (!record) continue;
      const status = link.statuses.get(key);
      const entry = status
        ? statusDelta(record, status)
        : missingTaskReport(record, clock.wallMs());
      if (entry) entries.push(entry);
      if (entries.length >= maxEntries) break;
    }
    return entries;
  }

  /** Puts the progress of jobs whose turn it is into the log, and of those named; one at a time. */
  #writeProgress(urgent: ReadonlySet<string>): Promise<void> {
    this.#progressWritten = this.#progressWritten.then(async () => {
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
    return this.#progressWritten;
  }

  #closeLinks(): void {
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
  }
}

function jobIdOf({ jobId }: TaskReportEntry): string {
  return jobId;
}
