import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { forEachInSteps, runInTurns, type Steps } from "@heddle/base/async/steps";
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
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

const closeMethod = method<ShardId, ShardId__Output, CloseShardReply, CloseShardReply__Output>(
  parameterShardsService,
  "Close",
);
const CLOSE_MS = 5_000;
/** Servers that are called at once, and concurrent calls per server, over one connection. */
const MAX_SERVERS = 16;
const MAX_CALLS = 8;
/** Attempts that ended up to this long before this term may still have shards on the servers. */
const LATELY_MS = 600_000;

export interface ShardReleaseOptions {
  readonly control: ControlPlane;
  readonly credentials: NodeCredentials;
  readonly log: Log;
  readonly clock: Clock;
  /** Called when jobs have released shards, as at their end. */
  readonly onFreed: () => void;
}

/** The shards of one attempt of a job on one server. */
interface Held {
  readonly serverId: string;
  readonly jobId: string;
  readonly attempt: number;
  readonly shards: readonly number[];
}

/**
 * The leader's step that frees the shards of jobs without live tasks: a killed trainer has not done
 * so itself. Nothing depends on it: a server that does not answer is lost, and a later attempt
 * takes its shards over. At the start of a term it repeats recent releases, which the last leader
 * may have missed.
 */
export class ShardRelease {
  readonly #options: ShardReleaseOptions;
  #held: ReadonlyMap<string, Held> = new Map();
  /** The last term in which this master led. */
  #term: number | undefined;

  constructor(options: ShardReleaseOptions) {
    this.#options = options;
  }

  async step(): Promise<undefined> {
    const term = this.#options.control.group?.status().term ?? 1;
    const isNewTerm = term !== this.#term;
    const before = isNewTerm ? await runInTurns(() => this.#recentHoldings()) : this.#held;
    this.#term = term;
    const held = await runInTurns(() => this.#find());
    this.#held = held;
    const over = [...before].filter(([key]) => !held.has(key)).map(([, each]) => each);
    const byServer = Map.groupBy(over, ({ serverId }) => serverId);
    await forEachLimit(byServer, MAX_SERVERS, ([id, held]) => this.#close(id, held));
    if (over.length > 0) this.#options.onFreed();
    return undefined;
  }

  *#find(): Steps<Map<string, Held>> {
    const { state, jobs } = this.#options.control;
    const found = new Map<string, Held>();
    for (const [serverId, holders] of jobs.shardsByServer) {
      yield* forEachInSteps(holders.keys(), (jobId) => {
        const job = state.jobs.get(jobId);
        if (job) this.#add(found, serverId, job);
      });
      yield;
    }
    return found;
  }

  /** The shards of the latest attempts of all live or recently ended jobs. */
  *#recentHoldings(): Steps<Map<string, Held>> {
    const { control, clock } = this.#options;
    const found = new Map<string, Held>();
    const sinceMs = clock.wallMs() - LATELY_MS;
    yield* forEachInSteps(control.state.jobs.values(), (job) => {
      if (isTerminal(job.state) && (job.endedAtMs ?? 0) < sinceMs) return;
      for (const serverId of new Set(job.shards)) this.#add(found, serverId, job);
    });
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
      await forEachLimit(over, MAX_CALLS, async ({ jobId, attempt, shards }) => {
        for (const shard of shards) {
          await peer.unary(closeMethod, { jobId, attempt, shard }, { deadlineMs: CLOSE_MS });
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
