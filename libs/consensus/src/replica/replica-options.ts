import type { AppError } from "@heddle/base/errors";
import type { Random } from "@heddle/base/random";
import type { TraceSink } from "@heddle/raft/core/trace";
import type { Member, StateMachine, Transport } from "../ports.ts";
import type { DurableLogOptions } from "./durable-log.ts";

/** What a replica is made of, and how it keeps time. */
export interface ReplicaOptions<Reply> {
  readonly id: number;
  /** Which start of this member this is; rises with every one. */
  readonly incarnation: number;
  readonly storage: Omit<DurableLogOptions, "restore">;
  readonly machine: StateMachine<Reply>;
  readonly transport: Transport;
  /** Draws the election timeouts. */
  readonly random: Random;
  /** On the first start of a new group: its first members, the same on each of them. */
  readonly firstMembers?: readonly Member[] | undefined;
  /** True for a member that is new in a group: its log may be empty. */
  readonly isJoining?: boolean | undefined;
  readonly electionTicks: number;
  readonly heartbeatTicks: number;
  /** How long a proposal or a read may take. */
  readonly requestTicks: number;
  /** Applied entries after which a snapshot is taken; 10,000. */
  readonly snapshotEntries?: number | undefined;
  /** Bytes of applied entries after which one is taken; 64 MiB. */
  readonly snapshotBytes?: number | undefined;
  /** Lets other work of the process continue; between two batches of commands. */
  readonly yieldToLoop: () => Promise<void>;
  /** Nothing can continue after a storage error; the owner must end the process. */
  readonly onFatal: (error: AppError) => void;
  /**
   * Called once, when this replica has applied that it was removed. A leader still has to hand over;
   * the owner should let it run for a moment before it ends it.
   */
  readonly onRemoved?: (() => void) | undefined;
  readonly trace?: TraceSink | undefined;
}
