import { toAppError } from "@heddle/base/errors";
import type {
  CloseShardReply,
  CloseShardReply__Output,
} from "@heddle/contracts/generated/heddle/v1/CloseShardReply";
import type { ShardId, ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import { fragmentsWanted } from "@heddle/control/jobs/task-request";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import type { ControlPlane } from "../ports.ts";
import { inTurns } from "./in-turns.ts";

const closeMethod = method<ShardId, ShardId__Output, CloseShardReply, CloseShardReply__Output>(
  parameterShardsService,
  "Close",
);
const closeMs = 5_000;
/** Servers that are spoken to at once, and calls to one of them, which go over one connection. */
const maxServers = 16;
const maxCalls = 8;

export interface ShardReleaseOptions {
  readonly control: ControlPlane;
  readonly credentials: NodeCredentials;
  readonly log: NodeLog;
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
 * a server that does not answer is lost, and a later attempt takes its shards over.
 */
export class ShardRelease {
  readonly #options: ShardReleaseOptions;
  #held = new Map<string, Held>();

  constructor(options: ShardReleaseOptions) {
    this.#options = options;
  }

  async step(): Promise<undefined> {
    const before = this.#held;
    this.#held = this.#find();
    const over = [...before].filter(([key]) => !this.#held.has(key)).map(([, held]) => held);
    const byServer = Map.groupBy(over, ({ serverId }) => serverId);
    await inTurns(byServer, maxServers, ([id, held]) => this.#close(id, held));
    if (over.length > 0) this.#options.onFreed();
    return undefined;
  }

  #find(): Map<string, Held> {
    const { state, jobs } = this.#options.control;
    const found = new Map<string, Held>();
    for (const [serverId, holders] of jobs.shardsByServer) {
      for (const jobId of holders.keys()) {
        const job = state.jobs.get(jobId);
        const all = job?.shards ?? [];
        const spec = state.specs.get(jobId);
        const count = all.length * (spec ? fragmentsWanted(spec) : 1);
        const shards = Array.from({ length: count }, (_, shard) => shard).filter(
          (shard) => all[shard % all.length] === serverId,
        );
        const attempt = job?.attempt ?? 0;
        found.set(`${serverId}/${jobId}/${attempt}`, { serverId, jobId, attempt, shards });
      }
    }
    return found;
  }

  async #close(serverId: string, over: readonly Held[]): Promise<void> {
    const { control, credentials, log } = this.#options;
    const server = control.state.servers.get(serverId);
    if (server?.state !== "ready") return;
    const peer = new Peer(server.address, credentials, "parameter-server");
    try {
      await inTurns(over, maxCalls, async ({ jobId, attempt, shards }) => {
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
