import { byAge } from "@heddle/scheduler/cluster/precedence";
import { QuotaLedger } from "@heddle/scheduler/cluster/quota-ledger";
import { takesQueuePlace } from "@heddle/scheduler/cycle/admission";
import type { QueuedJob, RunningJob } from "@heddle/scheduler/model";
import { entryKey, jobEntry } from "@heddle/scheduler/plan-entry";
import { usageAt } from "../records/account-changes.ts";
import type { PlanLimits } from "../records/commands.ts";
import type { JobRecord } from "../records/records.ts";
import { SERVING_PROJECT } from "../records/task-request.ts";
import { servingEntries } from "../scheduling/replica-claims.ts";
import {
  GPU_MILLI_MS_PER_HOUR,
  queuedEntry,
  queuedJob,
  runningEntry,
} from "../scheduling/scheduling-input.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

/** Why a quota or a limit refuses a start. */
export type QuotaRefusal = "quota" | "queue_position" | "concurrent_jobs";

/**
 * Checks the starts of one command against the quotas and limits in the log at that index,
 * independent of the plan's base. Same sums as the planner's, over the same jobs.
 */
export class QuotaCheck {
  readonly #change: JobsTransaction;
  readonly #limits: PlanLimits;
  /** Keyed by project; undefined for one without a quota. */
  readonly #ledgers = new Map<string, QuotaLedger | undefined>();
  /** Keyed by project: the queue positions of its waiting jobs before the command's first start. */
  readonly #positions = new Map<string, ReadonlyMap<string, number>>();
  #holding: number;

  constructor(change: JobsTransaction, limits: PlanLimits) {
    this.#change = change;
    this.#limits = limits;
    this.#holding = change.index.holdings.size;
  }

  /** Why this number of the job's tasks must not start now. */
  refusal(job: JobRecord, tasks: number): QuotaRefusal | undefined {
    const { maxConcurrentJobs } = this.#limits;
    if (job.liveTasks === 0 && this.#holding >= maxConcurrentJobs) return "concurrent_jobs";
    if (job.state === "pending" && this.#isTooFarBack(job)) return "queue_position";
    const blockers = this.#ledger(job.project)?.blockers(this.#queued(job, tasks)) ?? [];
    return blockers.length > 0 ? "quota" : undefined;
  }

  charge(job: JobRecord, tasks: number): void {
    if (job.liveTasks === 0) this.#holding++;
    this.#ledger(job.project)?.charge(this.#queued(job, tasks));
  }

  /** Why a replica must not get its place now. */
  claimRefusal(claim: QueuedJob): QuotaRefusal | undefined {
    const blockers = this.#ledger(claim.project)?.blockers(claim) ?? [];
    return blockers.length > 0 ? "quota" : undefined;
  }

  chargeClaim(claim: QueuedJob): void {
    this.#ledger(claim.project)?.charge(claim);
  }

  #queued(job: JobRecord, tasks: number): QueuedJob {
    const { state, index } = this.#change;
    return { ...queuedJob(state, index, job), tasks };
  }

  #ledger(name: string): QuotaLedger | undefined {
    if (this.#ledgers.has(name)) return this.#ledgers.get(name);
    const { state, index, now } = this.#change;
    const project = state.projects.get(name);
    let ledger: QuotaLedger | undefined;
    if (project && (project.quota.gpuMilli !== undefined || project.quota.gpuHours !== undefined)) {
      const { windowGpuMilliMs } = usageAt(project.usage, now.atMs);
      const usedGpuHours = windowGpuMilliMs / GPU_MILLI_MS_PER_HOUR;
      const gpuMilli = index.holdings.gpuMilli(name);
      const running = () => this.#running(name);
      ledger = new QuotaLedger(
        project.quota,
        { usedGpuHours, gpuMilli, running },
        now.atMs,
        this.#limits,
      );
    }
    this.#ledgers.set(name, ledger);
    return ledger;
  }

  /** All running work of the project, as the planner counts it. */
  *#running(project: string): Generator<RunningJob> {
    const { state, index } = this.#change;
    for (const id of index.holdings.jobs(project)) {
      const entry = runningEntry(state, index, state.jobs.get(id)!);
      if (entry) yield entry;
    }
    if (project !== SERVING_PROJECT) return;
    const nodes = new Set([...index.servingNodes, ...index.replicasByNode.keys()]);
    for (const id of nodes) yield* servingEntries(index, state.nodes.get(id)!);
  }

  #isTooFarBack({ id, project }: JobRecord): boolean {
    const limit = this.#change.state.projects.get(project)?.quota.queueLength;
    if (limit === undefined) return false;
    const positions = this.#positions.get(project) ?? this.#positionsOf(project);
    this.#positions.set(project, positions);
    return (positions.get(entryKey(jobEntry(id))) ?? 0) >= limit;
  }

  #positionsOf(project: string): ReadonlyMap<string, number> {
    const { state, index, now } = this.#change;
    const queue = [...index.live]
      .filter((id) => state.jobs.get(id)!.project === project)
      .map((id) => queuedEntry(state, index, state.jobs.get(id)!))
      .filter((queued) => queued !== undefined)
      .filter((queued) => takesQueuePlace(queued, now.atMs));
    return new Map(queue.sort(byAge).map(({ entry }, position) => [entryKey(entry), position]));
  }
}
