import type { Clock } from "@heddle/base/clock";
import { toAppError } from "@heddle/base/errors";
import type {
  CloseShardReply,
  CloseShardReply__Output,
} from "@heddle/contracts/generated/heddle/v1/CloseShardReply";
import type { ShardId, ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { requestedFragments } from "@heddle/control/jobs/records/task-request";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { forEachLimit } from "../for-each-limit.ts";

const closeMethod = method<ShardId, ShardId__Output, CloseShardReply, CloseShardReply__Output>(
  parameterShardsService,
  "Close",
);
const closeMs = 5_000;
/** Servers that are spoken to at once, and calls to one of them, which go over one connection. */
const maxServers = 16;
const maxCalls = 8;
/** What ended so long before this master led may still be on the servers: the one before it may have died with it. */
const latelyMs = 600_000;

export interface ShardReleaseOptions {
  readonly control: ControlPlane;
  readonly credentials: NodeCredentials;
  readonly log: NodeLog;
  readonly clock: Clock;
  /** Called when jobs have no shards any more, as when they have ended. */
  readonly onFreed: () => void;
}

/** The shards that one attempt of a job has on one server. */
interface Held {
  readonly serverId: string;
  readonly jobId: string;
  readonly attempt: number;
  readonly shards: readonly number[];
}

/**
 * The leader's step that has parameter servers free the shards of jobs of which no task is left: a
 * trainer that ended in order has done so itself, one that was killed has not. Nothing waits for it:
 * a server that does not answer is lost, and a later attempt takes its shards over. What was over a
 * while before this master led is freed at the beginning, as its predecessor may not have come to it.
 */
export class ShardRelease {
  readonly #options: ShardReleaseOptions;
  #held: ReadonlyMap<string, Held> = new Map();
  /** In which this master was last seen to lead. */
  #term: number | undefined;

  constructor(options: ShardReleaseOptions) {
    this.#options = options;
  }

  async step(): Promise<undefined> {
    const term = this.#options.control.group?.status().term ?? 1;
    const before = term === this.#term ? this.#held : this.#lately();
    this.#term = term;
    const held = this.#find();
    this.#held = held;
    const over = [...before].filter(([key]) => !held.has(key)).map(([, each]) => each);
    const byServer = Map.groupBy(over, ({ serverId }) => serverId);
    await forEachLimit(byServer, maxServers, ([id, held]) => this.#close(id, held));
    if (over.length > 0) this.#options.onFreed();
    return undefined;
  }

  #find(): Map<string, Held> {
    const { state, jobs } = this.#options.control;
    const found = new Map<string, Held>();
    for (const [serverId, holders] of jobs.shardsByServer) {
      for (const jobId of holders.keys()) {
        const job = state.jobs.get(jobId);
        if (job) this.#add(found, serverId, job);
      }
    }
    return found;
  }

  /** Of the latest attempts of all jobs that live or have ended of late. */
  #lately(): Map<string, Held> {
    const { control, clock } = this.#options;
    const found = new Map<string, Held>();
    const sinceMs = clock.wallMs() - latelyMs;
    for (const job of control.state.jobs.values()) {
      if (isTerminal(job.state) && (job.endedAtMs ?? 0) < sinceMs) continue;
      for (const serverId of new Set(job.shards)) this.#add(found, serverId, job);
    }
    return found;
  }

  #add(
    found: Map<string, Held>,
    serverId: string,
    { id: jobId, attempt, shards }: JobRecord,
  ): void {
    const all = shards ?? [];
    const spec = this.#options.control.state.specs.get(jobId);
    const count = all.length * (spec ? requestedFragments(spec) : 1);
    const own = Array.from({ length: count }, (_, shard) => shard).filter(
      (shard) => all[shard % all.length] === serverId,
    );
    found.set(`${serverId}/${jobId}/${attempt}`, { serverId, jobId, attempt, shards: own });
  }

  async #close(serverId: string, over: readonly Held[]): Promise<void> {
    const { control, credentials, log } = this.#options;
    const server = control.state.servers.get(serverId);
    if (server?.state !== "ready") return;
    const peer = new Peer(server.address, credentials, "parameter-server");
    try {
      await forEachLimit(over, maxCalls, async ({ jobId, attempt, shards }) => {
        for (const shard of shards) {
          await peer.unary(closeMethod, { jobId, attempt, shard }, { deadlineMs: closeMs });
        }
      });
    } catch (error) {
      const { message } = toAppError(error);
      log.info({ server: server.name, error: message }, "shards were not freed");
    } finally {
      peer.close();
    }
  }
}
