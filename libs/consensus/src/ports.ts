import type { Message } from "@heddle/raft/core/message";
import type { SnapshotMeta } from "@heddle/storage/snapshot-store";

/** A committed command on its way to the state machine. */
export interface Command {
  readonly index: number;
  readonly data: Uint8Array;
  /** Where this process of this replica proposed it: under which number. Else absent. */
  readonly proposal?: number | undefined;
}

/**
 * What the log is for. It must be deterministic: the same commands in the same order give the same
 * state and replies on every member. Its calls never overlap; it may live in another thread.
 */
export interface StateMachine<Reply> {
  /** One reply for each command. A rejection ends the replica: the state is no longer known. */
  apply(commands: readonly Command[]): Promise<readonly Reply[]>;
  /** The state as of this call, in pieces that are made as they are asked for. */
  snapshot(): Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
  /** Replaces the state; called again with an older snapshot after a rejection. */
  restore(chunks: AsyncIterable<Uint8Array>): Promise<void>;
}

/**
 * How members reach each other. Raft sends lost messages again; messages may be reordered and duplicated.
 * MsgProp must not be duplicated: a duplicate would be a second proposal.
 */
export interface Transport {
  /** Queues messages for a member; returns false if they were dropped, as for want of a link. */
  send(to: number, messages: readonly Message[]): boolean;
  /** Carries a snapshot to a member on a stream of its own; rejects unless it was taken in whole. */
  sendSnapshot(to: number, snapshot: OutgoingSnapshot): Promise<void>;
  /** The members other than this one, whenever they change. */
  setMembers(members: readonly Member[]): void;
}

export interface OutgoingSnapshot {
  readonly message: Message;
  readonly meta: SnapshotMeta;
  readonly chunks: AsyncIterable<Uint8Array>;
}

/** A master in the group. */
export interface Member {
  /** Its number in the Raft group, never used for another one. */
  readonly id: number;
  /** Its name, which a successor with a new disk takes over under another id. */
  readonly name: string;
  /** host:port where the others reach it. */
  readonly address: string;
  /** Drawn at random with its data directory: a wiped directory gets another one. */
  readonly nonce: string;
}
