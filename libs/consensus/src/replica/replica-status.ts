import { NO_NODE, type Role } from "@heddle/raft/core/state";
import type { Status } from "@heddle/raft/raw-node";
import type { Membership } from "./membership.ts";

/** A replica's own view of its state. */
export interface RaftReplicaStatus {
  readonly id: number;
  readonly role: Role;
  /**
   * True for a leader that has applied an entry of its term. Until then its state may lack what an
   * earlier leader has committed, and so decides nothing.
   */
  readonly isActiveLeader: boolean;
  readonly term: number;
  /** Undefined while none is known. */
  readonly leader: number | undefined;
  readonly commit: number;
  readonly applied: number;
  readonly snapshotIndex: number;
  /** True if it lags behind the commit index, or was disconnected and may not know that index. */
  readonly isBehind: boolean;
  readonly members: readonly MemberStatus[];
}

export interface MemberStatus {
  readonly id: number;
  readonly name: string;
  readonly address: string;
  /** True also where it is being removed: its vote counts until the change is complete. */
  readonly votes: boolean;
  /** On the leader only: how far this member's log is known to agree with the leader's. */
  readonly match?: number | undefined;
  /**
   * On the leader only: whether it answered since the quorum check before the last one, so within two
   * election timeouts. Undefined for a member that has not answered before the first check of a term.
   */
  readonly active?: boolean | undefined;
  /** On the leader only: true where its log has long lacked what is committed. */
  readonly isBehind?: boolean | undefined;
}

/** What the replica knows beside Raft. */
interface StatusContext extends Pick<RaftReplicaStatus, "applied" | "snapshotIndex" | "isBehind"> {
  /** The term of the last entry that was applied. */
  readonly appliedTerm: number;
  readonly isMemberBehind: (id: number, match: number) => boolean;
}

export function describeReplica(
  status: Status,
  membership: Membership,
  { isMemberBehind, appliedTerm, ...own }: StatusContext,
): RaftReplicaStatus {
  const { id, role, term, lead, commit, progress } = status;
  const { voters: incoming = [], votersOutgoing = [] } = membership.confState ?? {};
  const voters = new Set([...incoming, ...votersOutgoing]);
  const members = membership.members.map((member) => {
    const known = { ...member, votes: voters.has(member.id) };
    const peer = progress.get(member.id);
    if (!peer) return known;
    const { match, recentActive, wasActive } = peer;
    const active = recentActive || wasActive;
    return { ...known, match, active, isBehind: isMemberBehind(member.id, match) };
  });
  return {
    id,
    role,
    isActiveLeader: role === "leader" && appliedTerm === term,
    term,
    leader: lead === NO_NODE ? undefined : lead,
    commit,
    ...own,
    members,
  };
}
