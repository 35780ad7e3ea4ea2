import type { Status } from "@heddle/raft/raw-node";
import { NO_NODE, type Role } from "@heddle/raft/state";
import type { Membership } from "./membership.ts";

/** Where a replica stands, as it knows itself. */
export interface ReplicaStatus {
  readonly id: number;
  readonly role: Role;
  readonly term: number;
  /** Undefined while none is known. */
  readonly leader: number | undefined;
  readonly commit: number;
  readonly applied: number;
  readonly snapshotIndex: number;
  readonly members: readonly MemberStatus[];
}

export interface MemberStatus {
  readonly id: number;
  readonly name: string;
  readonly address: string;
  readonly votes: boolean;
  /** On the leader only: how far this member's log is known to agree with the leader's. */
  readonly match?: number | undefined;
  /** On the leader only: whether it answered within the last election timeout. */
  readonly active?: boolean | undefined;
}

export function describeReplica(
  status: Status,
  membership: Membership,
  applied: { readonly applied: number; readonly snapshotIndex: number },
): ReplicaStatus {
  const { id, role, term, lead, commit, progress } = status;
  const voters = new Set(membership.confState?.voters ?? []);
  const members = membership.members.map((member) => {
    const known = { ...member, votes: voters.has(member.id) };
    const peer = progress.get(member.id);
    return peer ? { ...known, match: peer.match, active: peer.recentActive } : known;
  });
  return {
    id,
    role,
    term,
    leader: lead === NO_NODE ? undefined : lead,
    commit,
    ...applied,
    members,
  };
}
