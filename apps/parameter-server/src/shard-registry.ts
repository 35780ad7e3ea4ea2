import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError } from "@heddle/base/errors";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { type ShardHandle, type ShardThreadContext, startShard } from "./shard/shard-handle.ts";

/** The shard that a call is for. */
export interface ShardKey {
  readonly jobId: string;
  readonly attempt: number;
  readonly shard: number;
}

/** Shards of one server, and jobs whose attempts it remembers. */
const MAX_SHARDS = 256;
const MAX_JOBS = 4096;

interface Job {
  attempt: number;
  refusedStale: number;
  /** The attempt that was closed as finished. */
  over?: number | undefined;
  readonly shards: Map<number, ShardHandle>;
}

/**
 * The shards of this server, by job. It remembers each job's highest attempt, and refuses calls of
 * a lower one.
 */
export class ShardRegistry {
  readonly #options: ShardThreadContext;
  readonly #jobs = new Map<string, Job>();
  /** Opens and closes are serialized. */
  readonly #changes = new SerialQueue();

  constructor(options: ShardThreadContext) {
    this.#options = options;
  }

  /**
   * Opens a shard of zeros. An existing one is kept for the same attempt, and for a later one of
   * the same plan; otherwise it is replaced.
   */
  open(spec: ShardSpec): Promise<ShardHandle> {
    return this.#changes.run(async () => {
      const job = this.#job(spec);
      const there = job.shards.get(spec.shard);
      if (there && !there.calls.ended) {
        if (there.spec.attempt === spec.attempt && isSamePlan(there.spec, spec)) return there;
        if (there.spec.attempt < spec.attempt && isSamePlan(there.spec, spec)) {
          await there.calls.call("reopen", spec);
          const reopened = { ...there, spec };
          job.shards.set(spec.shard, reopened);
          return reopened;
        }
        if (there.spec.attempt === spec.attempt) throw differentPlan(spec);
      }
      await there?.close();
      job.shards.delete(spec.shard);
      if (this.#count() >= MAX_SHARDS) {
        const message = `this server holds ${MAX_SHARDS} shards, as many as it may: use another`;
        throw new AppError("overloaded", message);
      }
      const handle = await startShard(spec, this.#options);
      job.shards.set(spec.shard, handle);
      return handle;
    });
  }

  /**
   * Throws an AppError: `precondition_failed` for a stale attempt, `gone` for a closed one,
   * `shard_unavailable` for a shard that is not here.
   */
  find(key: ShardKey): ShardHandle {
    const job = this.#jobs.get(key.jobId);
    if (job && key.attempt < job.attempt) throw this.#stale(key, job);
    const handle = job?.shards.get(key.shard);
    if (handle && !handle.calls.ended && handle.spec.attempt === key.attempt) return handle;
    if (job?.over === key.attempt) {
      const message = `attempt ${key.attempt} of job ${key.jobId} has ended: its shards were closed`;
      throw new AppError("gone", message);
    }
    throw new AppError(
      "shard_unavailable",
      `this server has no shard ${key.shard} of job ${key.jobId}, attempt ${key.attempt}: ` +
        "open it, or restore it from a checkpoint",
    );
  }

  /** The open shards of an attempt; none of a finished or different one. */
  allOf({ jobId, attempt }: Pick<ShardKey, "jobId" | "attempt">): ShardHandle[] {
    const shards = [...(this.#jobs.get(jobId)?.shards.values() ?? [])];
    return shards.filter(({ spec, calls }) => spec.attempt === attempt && !calls.ended);
  }

  /** Calls with an attempt lower than the job's. */
  refusedStale(jobId: string): number {
    return this.#jobs.get(jobId)?.refusedStale ?? 0;
  }

  /** Closes a shard; an absent one is closed already. */
  close(key: ShardKey): Promise<void> {
    return this.#changes.run(async () => {
      const job = this.#jobs.get(key.jobId);
      if (job && key.attempt < job.attempt) throw this.#stale(key, job);
      const handle = job?.shards.get(key.shard);
      // A later attempt that removes an earlier one's shards takes the job over.
      if (job) job.attempt = key.attempt;
      job?.shards.delete(key.shard);
      // The removal of an earlier attempt's shards does not finish the attempt that does it.
      if (job && handle?.spec.attempt === key.attempt) job.over = key.attempt;
      await handle?.close();
    });
  }

  /**
   * Closes all shards and forgets all attempts, since another incarnation of the cluster repeats
   * their numbers. Opens wait for it.
   */
  leaveCluster(): Promise<void> {
    return this.#changes.run(async () => {
      await this.closeAll();
      this.#jobs.clear();
    });
  }

  /** Counts a call of an earlier incarnation of the cluster. */
  refuseStale(): void {
    this.#options.refusals.add("stale");
  }

  async closeAll(): Promise<void> {
    const handles = [...this.#jobs.values()].flatMap(({ shards }) => [...shards.values()]);
    await Promise.all(handles.map((handle) => handle.close()));
  }

  /** Nest's hook: the node has left the masters. */
  onApplicationShutdown(): Promise<void> {
    return this.closeAll();
  }

  #job(spec: ShardSpec): Job {
    const known = this.#jobs.get(spec.jobId);
    if (known && spec.attempt < known.attempt) throw this.#stale(spec, known);
    const job: Job = known ?? { attempt: spec.attempt, refusedStale: 0, shards: new Map() };
    job.attempt = spec.attempt;
    job.over = undefined;
    if (!known) this.#forget();
    this.#jobs.set(spec.jobId, job);
    return job;
  }

  /** Makes room for one more job among those that have no shard here. */
  #forget(): void {
    if (this.#jobs.size < MAX_JOBS) return;
    const idle = [...this.#jobs].find(([, { shards }]) => shards.size === 0)?.[0];
    if (idle !== undefined) this.#jobs.delete(idle);
  }

  #stale({ jobId, attempt }: ShardKey | ShardSpec, job: Job): AppError {
    job.refusedStale++;
    this.#options.refusals.add("stale");
    return new AppError(
      "precondition_failed",
      `attempt ${attempt} of job ${jobId} is stale: attempt ${job.attempt} has taken it over`,
    );
  }

  #count(): number {
    return [...this.#jobs.values()].reduce((sum, { shards }) => sum + shards.size, 0);
  }
}

function differentPlan({ jobId, attempt }: ShardSpec): AppError {
  return new AppError(
    "conflict",
    `attempt ${attempt} of job ${jobId} is open with other parameters, servers, optimizer or ` +
      "consistency: all of an attempt must be opened alike",
  );
}

/** Whether the slab and the rules are the same; token and attempt may differ. */
function isSamePlan(left: ShardSpec, right: ShardSpec): boolean {
  const plan = ({
    attempt: _attempt,
    jobToken: _token,
    ticket: _ticket,
    servers,
    ...rest
  }: ShardSpec) => JSON.stringify({ ...rest, shards: servers.length });
  return plan(left) === plan(right);
}
