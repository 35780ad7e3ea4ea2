import type { Readable } from "node:stream";
import type { ThreadCounts } from "@heddle/consensus/thread/thread-counts";
import type { StateKind } from "@heddle/control/state-limits";

/** The masters as a group, as this one sees it. */
export interface ControlGroup {
  status(): GroupStatus;
  /** A part of it that is cheap enough for each call: no hash of the state, no copies. */
  roster(): GroupRoster;
  /** With the state's hash, also right after this process was stopped; else it resolves at once. */
  statusAfterPauses(): Promise<HashedStatus>;
  /** Whether no other master belongs to the group, as far as this one knows. */
  isAlone(): boolean;
  /** How far each member is, which only the leader knows; rejects where it does not answer. */
  progress(): Promise<readonly MemberProgress[]>;
  /** Resolves when this master's state holds every change made before the call. */
  readBarrier(): Promise<void>;
  /** Asks for leadership to go to the master of that name, or to any other one. */
  transferLeadership(name: string | undefined): Promise<void>;
  /** Takes a snapshot of this master's state and drops its log before it. */
  takeSnapshot(): Promise<void>;
  removeMember(name: string): Promise<void>;
  /**
   * This master's state as of now or later. It holds every change that was answered, which the leader
   * confirms; with `isStale` the leader is not asked and changes may be missing.
   */
  takeBackup(isStale: boolean): Promise<Backup>;
  /** What this master counted since its start. */
  counts(): RaftCounts;
}

/** The state at one position of the log, as the bytes of a backup file. */
export interface Backup {
  readonly index: number;
  readonly term: number;
  readonly bytes: number;
  /** Must be read to its end or destroyed. */
  readonly content: Readable;
}

/** Figures of a master's replica since its start. */
export interface RaftCounts extends ThreadCounts {
  /** Changes that this master proposed, and those that were not made or not known to be. */
  readonly proposals: number;
  readonly proposalsFailed: number;
  /** Seconds from a proposal to its reply, over those that succeeded. */
  readonly proposalSeconds: number;
  /** Changes that it proposed and that the state had no room for, by the kind of their records. */
  readonly refusedForRoom: Readonly<Record<StateKind, number>>;
  readonly snapshotsTaken: number;
  readonly snapshotsInstalled: number;
}

/** The same lists until a new status of the group arrives. */
export interface GroupRoster {
  /** This master's id in the group. */
  readonly id: number;
  readonly members: readonly Pick<GroupMember, "id" | "name">[];
}

export interface GroupStatus {
  readonly cluster: string;
  /** This master's id in the group. */
  readonly id: number;
  readonly role: "leader" | "follower" | "candidate" | "preCandidate";
  /** True for a leader whose state here holds all that earlier leaders have committed: it may decide. */
  readonly isActiveLeader: boolean;
  readonly term: number;
  /** Undefined while none is known: then changes are refused, and reads may be stale. */
  readonly leader: number | undefined;
  readonly commit: number;
  readonly applied: number;
  readonly snapshotIndex: number;
  /**
   * Reads may be stale. This master was removed, has not applied commits for long, or was
   * disconnected and does not know the commit index yet.
   */
  readonly isBehind: boolean;
  /** Commands applied since the cluster began. */
  readonly commands: number;
  /** The version of the rules by which commands are applied. */
  readonly clusterVersion: number;
  /** The highest version that this master supports. */
  readonly supportedVersion: number;
  readonly members: readonly GroupMember[];
}

/** With a hash of the state that `commands` led to. */
export interface HashedStatus extends GroupStatus {
  readonly stateHash: string;
}

export interface GroupMember {
  readonly id: number;
  readonly name: string;
  readonly address: string;
  readonly votes: boolean;
  /** Whether a stream connects that master and this one. */
  readonly connected: boolean;
}

export interface MemberProgress {
  readonly id: number;
  /** Up to here its log is known to agree with the leader's. */
  readonly match: number;
  /** Whether it answered within the last two election timeouts, or is connected to a new leader. */
  readonly active: boolean;
  /** Whether its log has long lacked what is committed; absent from a master of an earlier version. */
  readonly behind?: boolean | undefined;
}
