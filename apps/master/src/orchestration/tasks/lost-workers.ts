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
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { forEachLimit } from "../for-each-limit.ts";

const releaseMethod = method<
  LostWorker,
  LostWorker__Output,
  LostWorkerReply,
  LostWorkerReply__Output
>(parameterShardsService, "ReleaseWorker");
const callMs = 5_000;
/** Until a server that did not answer is told again. */
const againMs = 1_000;
/** Servers that are told at once, and words to one of them, which go over one connection. */
const maxServers = 16;
const maxCalls = 8;

export interface LostWorkersOptions {
  readonly control: ControlPlane;
  readonly credentials: NodeCredentials;
  readonly log: NodeLog;
  readonly clock: Clock;
}

/**
 * The leader's step that tells parameter servers of tasks that are lost within the tolerance of their
 * job and surely over: the others' updates go on without them. One whose place another task has taken
 * meanwhile is passed over by the servers, so that a word that comes late does no harm.
 */
export class LostWorkers {
  readonly #options: LostWorkersOptions;
  /** Server, job, attempt, rank and incarnation of what was told. */
  #told = new Set<string>();

  constructor(options: LostWorkersOptions) {
    this.#options = options;
  }

  /** Resolves with the wall-clock time of the next try where a server did not answer. */
  async step(): Promise<number | undefined> {
    const { state } = this.#options.control;
    const due = [...state.jobs.values()]
      .filter((job) => job.state === "recovering" && job.shards !== undefined)
      .flatMap((job) => this.#lostOf(job));
    const told = new Set(due.map(({ key }) => key).filter((key) => this.#told.has(key)));
    this.#told = told;
    const open = due.filter(({ key }) => !told.has(key));
    const byServer = Map.groupBy(open, ({ serverId }) => serverId);
    await forEachLimit(byServer, maxServers, ([id, words]) => this.#tell(id, words));
    const isDone = open.every(({ key }) => told.has(key));
    return isDone ? undefined : this.#options.clock.wallMs() + againMs;
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
          ...{ serverId, jobId, attempt, rank, incarnation },
          key: `${serverId}/${jobId}/${attempt}/${rank}/${incarnation}`,
        })),
      );
  }

  /** A server that does not take one word is told the rest the next time. */
  async #tell(serverId: string, words: readonly Due[]): Promise<void> {
    const { control, credentials, log } = this.#options;
    const server = control.state.servers.get(serverId);
    // Where a server is lost the attempt ends.
    if (server?.state !== "ready") return;
    const peer = new Peer(server.address, credentials, "parameter-server");
    try {
      await forEachLimit(words, maxCalls, async ({ serverId: _, key, ...lost }) => {
        await peer.unary(releaseMethod, lost, { deadlineMs: callMs });
        this.#told.add(key);
        log.info({ job: lost.jobId, rank: lost.rank }, "the others go on without a lost task");
      });
    } catch (error) {
      const { message } = toAppError(error);
      log.info({ server: server.name, error: message }, "a server was not told of a lost task");
    } finally {
      peer.close();
    }
  }
}

/** A lost task, and a server that is to be told of it. */
interface Due {
  readonly serverId: string;
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  readonly incarnation: number;
  readonly key: string;
}
