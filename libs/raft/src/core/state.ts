/** The id that stands for no node: no leader, no vote. */
export const NO_NODE = 0;

/** The part a node plays; a pre-candidate asks whether it could win before it raises its term. */
export type Role = "follower" | "preCandidate" | "candidate" | "leader";

/** State that may be lost in a crash; useful for logs and for routing requests. */
export interface SoftState {
  /** The leader that this node believes in, or NO_NODE. */
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
  /** The state itself, or whatever the driver needs to fetch it; opaque here. */
  readonly data: Uint8Array;
}

/** The answer to a read: once the node has applied `index`, the read is linearizable. */
export interface ReadState {
  readonly index: number;
  /** The bytes that the caller gave with the read. */
  readonly context: Uint8Array;
}

/** The membership of a node that has heard of none. */
export const EMPTY_CONF_STATE: ConfState = {
  voters: [],
  learners: [],
  votersOutgoing: [],
  learnersNext: [],
  autoLeave: false,
};

/** The hard state of a node that never ran. */
export const EMPTY_HARD_STATE: HardState = { term: 0, vote: NO_NODE, commit: 0 };

/** True if writing the one over the other would change nothing. */
export function hardStatesEqual(a: HardState, b: HardState): boolean {
  return a.term === b.term && a.vote === b.vote && a.commit === b.commit;
}

/** True if a hard state says nothing, as that of a node which never ran. */
export function isEmptyHardState(state: HardState): boolean {
  return hardStatesEqual(state, EMPTY_HARD_STATE);
}

/** True if both name the same members, in whatever order. */
export function confStatesEquivalent(a: ConfState, b: ConfState): boolean {
  const normal = (state: ConfState) =>
    JSON.stringify(
      [state.voters, state.learners, state.votersOutgoing, state.learnersNext].map((ids) =>
        [...ids].sort((x, y) => x - y),
      ),
    );
  return a.autoLeave === b.autoLeave && normal(a) === normal(b);
}

/** True if a node votes or learns in a configuration; the learners to be are voters until then. */
export function isMember({ voters, learners, votersOutgoing }: ConfState, id: number): boolean {
  return [voters, learners, votersOutgoing].some((ids) => ids.includes(id));
}
