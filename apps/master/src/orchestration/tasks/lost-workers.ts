import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { runInTurns, STEP_ITEMS, type Steps } from "@heddle/base/async/steps";
import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type {
  LostWorker,
  LostWorker__Output,
} from "@heddle/contracts/generated/heddle/v1/LostWorker";
import type {
  LostWorkerReply,
  LostWorkerReply__Output,
} from "@heddle/contracts/generated/heddle/v1/LostWorkerReply";
import { type JobRecord, type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";
import { missingRanks } from "@heddle/control/jobs/records/recovery";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

const releaseMethod = method<
  LostWorker,
  LostWorker__Output,
  LostWorkerReply,
  LostWorkerReply__Output
>(parameterShardsService, "ReleaseWorker");
const CALL_MS = 5_000;
/** The wait before a retry for a server that did not answer. */
const AGAIN_MS = 1_000;
/** Servers that are called at once, and concurrent calls per server, over one connection. */
const MAX_SERVERS = 16;
const MAX_CALLS = 8;

export interface LostWorkersOptions {
  readonly control: ControlPlane;
  readonly credentials: NodeCredentials;
  readonly log: Log;
  readonly clock: Clock;
}

/**
 * The leader's step that reports tasks lost within the tolerance to the parameter servers, so that
 * updates continue without them. The servers ignore a task that was replaced meanwhile, so a late
 * report is harmless.
 */
export class LostWorkers {
  readonly #options: LostWorkersOptions;
  /** Server, job, attempt, rank and incarnation of each completed report. */
  #reported = new Set<string>();

  constructor(options: LostWorkersOptions) {
    this.#options = options;
  }

  /** Resolves with the wall-clock time of the next retry, if one is needed. */
  async step(): Promise<number | undefined> {
    const due = await runInTurns(() => this.#due());
    const reported = new Set(due.map(({ key }) => key).filter((key) => this.#reported.has(key)));
    this.#reported = reported;
    const open = due.filter(({ key }) => !reported.has(key));
    const byServer = Map.groupBy(open, ({ serverId }) => serverId);
    await forEachLimit(byServer, MAX_SERVERS, ([id, reports]) => this.#report(id, reports));
    const isDone = open.every(({ key }) => reported.has(key));
    return isDone ? undefined : this.#options.clock.wallMs() + AGAIN_MS;
  }

  *#due(): Steps<Due[]> {
    const { state, jobs } = this.#options.control;
    const due: Due[] = [];
    let examined = 0;
    for (const id of jobs.live) {
      const job = state.jobs.get(id);
      const isRecovering = job?.state === "recovering" && job.shards !== undefined;
      if (isRecovering) due.push(...this.#lostOf(job));
      examined += isRecovering ? job.tasks : 1;
      if (examined < STEP_ITEMS) continue;
      examined = 0;
      yield;
    }
    return due;
  }

  #lostOf(job: JobRecord): Due[] {
    const { state } = this.#options.control;
    const tasks = Array.from({ length: job.tasks }, (_, rank) =>
      state.tasks.get(taskKey(job.id, job.attempt, rank)),
    ).filter((task): task is TaskRecord => task !== undefined);
    const lost = new Set(missingRanks({ tasksOf: () => tasks }, job));
    const servers = [...new Set(job.shards ?? [])];
    return tasks
      .filter(({ rank }) => lost.has(rank))
      .flatMap(({ jobId, attempt, rank, incarnation = 0 }) =>
        servers.map((serverId) => ({
          serverId,
          jobId,
          attempt,
          rank,
          incarnation,
          key: `${serverId}/${jobId}/${attempt}/${rank}/${incarnation}`,
        })),
      );
  }

  /** After an error the rest is sent at the next try. */
  async #report(serverId: string, reports: readonly Due[]): Promise<void> {
    const { control, credentials, log } = this.#options;
    const server = control.state.servers.get(serverId);
    // The loss of a server ends the attempt.
    if (server?.state !== "ready") return;
    const peer = new Peer(server.address, credentials, "parameter-server");
    try {
      await forEachLimit(reports, MAX_CALLS, async ({ serverId: _, key, ...lost }) => {
        await peer.unary(releaseMethod, lost, { deadlineMs: CALL_MS });
        this.#reported.add(key);
        log.info({ job: lost.jobId, rank: lost.rank }, "the others continue without a lost task");
      });
    } catch (error) {
      const { message } = toAppError(error);
      log.info(
        { server: server.name, error: message },
        "a server did not receive the loss of a task",
      );
    } finally {
      peer.close();
    }
  }
}

/** A lost task, and a server that needs a report of it. */
interface Due {
  readonly serverId: string;
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  readonly incarnation: number;
  readonly key: string;
}
