/** The id of no node: no leader, no vote. */
export const NO_NODE = 0;

/** A pre-candidate runs the pre-vote, before it raises its term. */
export type Role = "follower" | "preCandidate" | "candidate" | "leader";

/** State that may be lost in a crash; useful for logs and for routing requests. */
export interface SoftState {
  /** The known leader, or NO_NODE. */
  readonly lead: number;
  readonly role: Role;
}

/** State that must be durable before any message that depends on it is sent. */
export interface HardState {
  readonly term: number;
  /** The candidate that got this node's vote in the term, or NO_NODE. */
  readonly vote: number;
  readonly commit: number;
}

/** A membership as it is stored in snapshots; all lists ascending and without repetition. */
export interface ConfState {
  readonly voters: readonly number[];
  readonly learners: readonly number[];
  /** The voters of the outgoing half of a joint configuration; else empty. */
  readonly votersOutgoing: readonly number[];
  /** Outgoing voters that become learners when the joint configuration is left. */
  readonly learnersNext: readonly number[];
  /** True if the leader leaves the joint configuration by itself. */
  readonly autoLeave: boolean;
}

/** The applied state up to an index, in place of the log up to there. */
export interface Snapshot {
  readonly index: number;
  readonly term: number;
  readonly confState: ConfState;
  /** The state itself, or a reference with which the driver fetches it; opaque here. */
  readonly data: Uint8Array;
}

/** The answer to a read: once the node has applied `index`, the read is linearizable. */
export interface ReadState {
  readonly index: number;
  /** The bytes that the caller gave with the read. */
  readonly context: Uint8Array;
}

/** The membership of a node that knows no configuration. */
export const EMPTY_CONF_STATE: ConfState = {
  voters: [],
  learners: [],
  votersOutgoing: [],
  learnersNext: [],
  autoLeave: false,
};

/** The hard state of a node that never ran. */
export const EMPTY_HARD_STATE: HardState = { term: 0, vote: NO_NODE, commit: 0 };

/** True if both are equal, so that a write changes nothing. */
export function hardStatesEqual(a: HardState, b: HardState): boolean {
  return a.term === b.term && a.vote === b.vote && a.commit === b.commit;
}

/** True for the hard state of a node that never ran. */
export function isEmptyHardState(state: HardState): boolean {
  return hardStatesEqual(state, EMPTY_HARD_STATE);
}

/** True if both have the same members, in any order. */
export function confStatesEquivalent(a: ConfState, b: ConfState): boolean {
  const normal = (state: ConfState) =>
    JSON.stringify(
      [state.voters, state.learners, state.votersOutgoing, state.learnersNext].map((ids) =>
        [...ids].sort((x, y) => x - y),
      ),
    );
  return a.autoLeave === b.autoLeave && normal(a) === normal(b);
}

/** True if a node votes or learns in a configuration; `learnersNext` are outgoing voters. */
export function isMember({ voters, learners, votersOutgoing }: ConfState, id: number): boolean {
  return [voters, learners, votersOutgoing].some((ids) => ids.includes(id));
}
