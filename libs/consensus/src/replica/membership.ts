import { type ConfState, EMPTY_CONF_STATE, isMember } from "@heddle/raft/core/state";
import type { ConfChange } from "@heddle/raft/membership/conf-change";
import type { Member } from "../ports.ts";
import type { ProposalId } from "../proposals/entry-codec.ts";

/** The membership as it is kept in snapshots. */
export interface MembershipState {
  readonly confState: ConfState;
  readonly members: readonly Member[];
  /** The highest id that was ever given; the next member gets the one after it. */
  readonly lastId: number;
}

/** The application's part of a conf change: the new members. */
interface MembershipContext {
  readonly members: readonly Member[];
}

/**
 * The members of the group, as of the last applied entry. A removed voter stays in it until the
 * joint configuration is left: until then a majority of the earlier members is needed.
 */
export class Membership {
  #members = new Map<number, Member>();
  #lastId: number;
  /** Undefined while a snapshot on its way must bring it. */
  confState: ConfState | undefined;

  constructor(state: MembershipState) {
    this.confState = state.confState;
    this.#members = new Map(state.members.map((member) => [member.id, member]));
    this.#lastId = state.lastId;
  }

  get members(): readonly Member[] {
    return [...this.#members.values()];
  }

  /** True while a change is under way that two majorities decide, or the configuration is not known. */
  get isJoint(): boolean {
    return this.confState?.votersOutgoing.length !== 0;
  }

  get nextId(): number {
    return this.#lastId + 1;
  }

  find(name: string): Member | undefined {
    return this.members.find((member) => member.name === name);
  }

  has(id: number): boolean {
    return this.#members.has(id);
  }

  /** True for a member that was in the group and was taken out of it, which is for good. */
  wasRemoved(id: number): boolean {
    return this.#members.size > 0 && id <= this.#lastId && !this.has(id);
  }

  /** Undefined where the configuration is not known. */
  state(): MembershipState | undefined {
    const { confState } = this;
    return confState && { confState, members: this.members, lastId: this.#lastId };
  }

  /**
   * Why a committed change must not take effect: two proposals may have picked one id or name. All
   * members come to the same answer. Without a voter nothing could be committed ever again.
   */
  refusal(change: ConfChange, context: MembershipContext): string | undefined {
    if (this.confState && !keepsVoter(this.confState, change)) {
      return "the change would leave no member that votes";
    }
    const removed = new Set(
      change.changes.filter(({ type }) => type === "removeNode").map(({ nodeId }) => nodeId),
    );
    for (const { type, nodeId } of change.changes) {
      if (type === "removeNode") continue;
      const member = context.members.find(({ id }) => id === nodeId);
      const known = this.#members.get(nodeId);
      // A learner's promotion names no member; a member that joins twice shows the same nonce.
      if (known && (!member || member.nonce === known.nonce)) continue;
      if (!member) return `the change adds member ${nodeId} without a name`;
      if (nodeId <= this.#lastId) {
        return `another member joined at the same moment and was given the id ${nodeId}; ask again`;
      }
      const namesake = this.find(member.name);
      if (namesake && !removed.has(namesake.id)) return `a member ${member.name} exists`;
    }
    return undefined;
  }

  /** Takes in a change that has taken effect and the configuration that it led to. */
  apply(change: ConfChange, context: MembershipContext, confState: ConfState | undefined): void {
    this.confState = confState;
    for (const member of context.members) {
      this.#members.set(member.id, member);
      this.#lastId = Math.max(this.#lastId, member.id);
    }
    const removed = confState
      ? [...this.#members.keys()].filter((id) => !isMember(confState, id))
      : change.changes.flatMap(({ type, nodeId }) => (type === "removeNode" ? [nodeId] : []));
    for (const id of removed) this.#members.delete(id);
  }
}

function keepsVoter({ voters }: ConfState, { changes }: ConfChange): boolean {
  const left = new Set(voters);
  for (const { type, nodeId } of changes) {
    if (type === "addNode") left.add(nodeId);
    else if (type !== "updateNode") left.delete(nodeId);
  }
  return left.size > 0;
}

/** The membership with which a group begins. */
export function firstMembership(members: readonly Member[]): MembershipState {
  const voters = members.map(({ id }) => id).sort((a, b) => a - b);
  return { confState: { ...EMPTY_CONF_STATE, voters }, members, lastId: Math.max(...voters) };
}

/** The JSON that goes with a conf change, so that all members know whom it adds. */
export function encodeContext(proposal: ProposalId, members: readonly Member[]): Uint8Array {
  return Buffer.from(JSON.stringify({ proposal, members }));
}

/** Empty for a change that Raft made by itself, such as leaving a joint configuration. */
export function decodeContext(context: Uint8Array): {
  readonly members?: readonly Member[];
  readonly proposal?: ProposalId;
} {
  return context.byteLength === 0 ? {} : JSON.parse(Buffer.from(context).toString());
}
