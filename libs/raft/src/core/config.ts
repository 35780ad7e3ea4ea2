import { AppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { Storage } from "../log/storage.ts";
import { isStorageThread } from "./message.ts";
import type { TraceSink } from "./trace.ts";

/** The options of a node. Times are in ticks, whose length the driver chooses. */
export interface RaftConfig {
  /** The id of this node; positive and never reused for another one. */
  readonly id: number;
  /** A follower campaigns after this many ticks without a leader, up to twice as many at random. */
  readonly electionTicks: number;
  /** The ticks between heartbeats of a leader; a tenth of electionTicks is usual. */
  readonly heartbeatTicks: number;
  readonly storage: Storage;
  /** The source of the random election timeouts. */
  readonly random: Random;
  /** The last index that the application has applied durably; 0 means the snapshot's index. */
  readonly applied?: number;
  /**
   * Storage writes are messages to the append and apply threads, without `advance`. Default false.
   */
  readonly asyncStorageWrites?: boolean;
  /** The bytes of entries in one append, if more than one; 0 for one entry. Default 1 MiB. */
  readonly maxMessageBytes?: number;
  /**
   * The bytes of entries passed to the application and not applied yet. Default maxMessageBytes.
   */
  readonly maxApplyingBytes?: number;
  /** The payload bytes that a leader accepts ahead of the commit index. Default 64 MiB. */
  readonly maxUncommittedBytes?: number;
  /** The appends in flight to one peer. Default 256. */
  readonly maxInflightMessages?: number;
  /** The payload bytes in flight to one peer; at least maxMessageBytes. Default 64 MiB. */
  readonly maxInflightBytes?: number;
  /** The reads that wait for confirmation. Default 65,536. */
  readonly maxPendingReads?: number;
  /** A leader without responses from a quorum for electionTicks steps down. Default true. */
  readonly checkQuorum?: boolean;
  /** A node first runs a pre-vote, and raises its term only if it could win. Default true. */
  readonly preVote?: boolean;
  /**
   * How reads are confirmed: by a quorum, or by the `lease`, which is wrong where clocks differ.
   * The lease is only for tests and needs checkQuorum. Default `quorum`.
   */
  readonly readMode?: "quorum" | "lease";
  /** A follower refuses proposals and does not forward them to the leader. Default false. */
  readonly disableProposalForwarding?: boolean;
  /** The leader does not check conf changes against its active configuration. Default false. */
  readonly disableConfChangeValidation?: boolean;
  /**
   * A leader that is removed or demoted steps down at once, and the others wait for a timeout. It
   * excludes handOverOnRemoval. Default false.
   */
  readonly stepDownOnRemoval?: boolean;
  /**
   * A leader that is removed or demoted brings a voter up to date and transfers leadership to it.
   * Default: unless stepDownOnRemoval.
   */
  readonly handOverOnRemoval?: boolean;
  /**
   * A rejected vote carries the commit index, so the candidate can apply a membership change whose
   * commit it does not know. Otherwise it might need the vote of a removed node, which rejects it
   * forever if its log is longer. Default true.
   */
  readonly commitInRefusedVotes?: boolean;
  /**
   * A non-leader that gets this many ticks at once restarts its election timer and does not count
   * them. It was suspended, and its messages are unread. Default half of electionTicks.
   */
  readonly lateTicks?: number;
  readonly trace?: TraceSink | undefined;
}

/** A RaftConfig with all defaults filled in. */
export type ResolvedConfig = Required<Omit<RaftConfig, "trace">> & Pick<RaftConfig, "trace">;

const MIB = 1024 * 1024;

/** Fills in the defaults; throws `invalid_value` for limits that contradict each other. */
export function resolveConfig(config: RaftConfig): ResolvedConfig {
  const maxMessageBytes = config.maxMessageBytes ?? MIB;
  const resolved: ResolvedConfig = {
    id: config.id,
    electionTicks: config.electionTicks,
    heartbeatTicks: config.heartbeatTicks,
    storage: config.storage,
    random: config.random,
    applied: config.applied ?? 0,
    asyncStorageWrites: config.asyncStorageWrites ?? false,
    maxMessageBytes,
    maxApplyingBytes: config.maxApplyingBytes ?? Math.max(1, maxMessageBytes),
    maxUncommittedBytes: config.maxUncommittedBytes ?? 64 * MIB,
    maxInflightMessages: config.maxInflightMessages ?? 256,
    maxInflightBytes: config.maxInflightBytes ?? Math.max(64 * MIB, maxMessageBytes),
    maxPendingReads: config.maxPendingReads ?? 65_536,
    checkQuorum: config.checkQuorum ?? true,
    preVote: config.preVote ?? true,
    readMode: config.readMode ?? "quorum",
    disableProposalForwarding: config.disableProposalForwarding ?? false,
    disableConfChangeValidation: config.disableConfChangeValidation ?? false,
    stepDownOnRemoval: config.stepDownOnRemoval ?? false,
    handOverOnRemoval: config.handOverOnRemoval ?? !config.stepDownOnRemoval,
    commitInRefusedVotes: config.commitInRefusedVotes ?? true,
    lateTicks: config.lateTicks ?? Math.max(2, Math.ceil(config.electionTicks / 2)),
    trace: config.trace,
  };
  check(resolved);
  return resolved;
}

function check(config: ResolvedConfig): void {
  const demand = (condition: boolean, name: string, rule: string): void => {
    if (!condition) {
      throw new AppError("invalid_value", `raft configuration: ${name} must be ${rule}`, {
        param: name,
      });
    }
  };
  const { id, electionTicks, heartbeatTicks, maxMessageBytes } = config;
  demand(Number.isSafeInteger(id) && id > 0 && !isStorageThread(id), "id", "a positive integer");
  demand(heartbeatTicks > 0, "heartbeatTicks", "greater than 0");
  demand(electionTicks > heartbeatTicks, "electionTicks", "greater than heartbeatTicks");
  demand(config.lateTicks > 1, "lateTicks", "greater than 1");
  demand(config.maxApplyingBytes > 0, "maxApplyingBytes", "greater than 0");
  demand(config.maxUncommittedBytes > 0, "maxUncommittedBytes", "greater than 0");
  demand(config.maxInflightMessages > 0, "maxInflightMessages", "greater than 0");
  demand(
    config.maxInflightBytes >= maxMessageBytes,
    "maxInflightBytes",
    "at least maxMessageBytes",
  );
  demand(config.maxPendingReads > 0, "maxPendingReads", "greater than 0");
  demand(
    config.readMode === "quorum" || config.checkQuorum,
    "checkQuorum",
    "true where readMode is lease",
  );
}
