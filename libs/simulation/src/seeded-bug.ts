import { ReadOnly } from "@heddle/raft/core/read-only";
import { RaftLog } from "@heddle/raft/log/raft-log";
import { majorityCommittedIndex } from "@heddle/raft/tracker/quorum";
import { ProgressTracker } from "@heddle/raft/tracker/tracker";

/** Planted bugs, to test that the checkers detect them. */
export const SEEDED_BUGS = [
  /** The disk answers at once and loses most writes. */
  "skipFsync",
  /** The disk answers before the bytes are on it. */
  "ackBeforeFsync",
  /** A rejected vote is granted nevertheless. */
  "doubleVote",
  /** A new leader's term does not begin with an entry of its own. */
  "skipNoOp",
  /** A leader commits entries of old terms by counting copies. */
  "countOldTerm",
  /** A leader answers reads without a round that confirms its leadership. */
  "leaseRead",
  /** The acknowledgement of one member confirms a read, where a majority's must. */
  "oneAckRead",
  /** The answer to an earlier heartbeat confirms a read too. */
  "staleAck",
  /** While the configuration is joint, a majority of the new members alone commits. */
  "ignoreOutgoing",
  /** A request that is repeated under its idempotency key is applied again. */
  "lostIdempotency",
] as const;
export type SeededBug = (typeof SEEDED_BUGS)[number];

/**
 * Plants a bug in the core where ports do not reach, by replacing methods of its prototypes; the
 * product has no hooks for it. Returns a function that restores them.
 */
export function plant(bug: SeededBug | undefined): () => void {
  switch (bug) {
    case "skipNoOp":
      return skipNoOp();
    case "countOldTerm":
      return countOldTerm();
    case "leaseRead":
      return leaseRead();
    case "oneAckRead":
      return oneAckRead();
    case "staleAck":
      return staleAck();
    case "ignoreOutgoing":
      return ignoreOutgoing();
    default:
      return () => undefined;
  }
}

function countOldTerm(): () => void {
  const { maybeCommit } = RaftLog.prototype;
  RaftLog.prototype.maybeCommit = function (this: RaftLog, { index, term }) {
    const found = this.termOrZero(index);
    if (index <= this.committed || found === 0 || found > term) return false;
    this.commitTo(index);
    return true;
  };
  return () => {
    RaftLog.prototype.maybeCommit = maybeCommit;
  };
}

/** A follower's appends stay unchanged; a leader's own appends lose empty entries. */
function skipNoOp(): () => void {
  const { append, maybeAppend } = RaftLog.prototype;
  let isFollowing = false;
  RaftLog.prototype.maybeAppend = function (this: RaftLog, slice, commit) {
    isFollowing = true;
    const last = maybeAppend.call(this, slice, commit);
    isFollowing = false;
    return last;
  };
  RaftLog.prototype.append = function (this: RaftLog, entries) {
    const [first] = entries;
    const isOwn = !isFollowing && first?.type === "EntryNormal" && first.data.length === 0;
    return append.call(this, isOwn ? [] : entries);
  };
  return () => {
    Object.assign(RaftLog.prototype, { append, maybeAppend });
  };
}

function leaseRead(): () => void {
  const { decidesAlone } = ProgressTracker.prototype;
  ProgressTracker.prototype.decidesAlone = () => true;
  return () => {
    ProgressTracker.prototype.decidesAlone = decidesAlone;
  };
}

function oneAckRead(): () => void {
  const { takeConfirmed } = ReadOnly.prototype;
  ReadOnly.prototype.takeConfirmed = function (this: ReadOnly, { incoming, outgoing }) {
    const ids = [...incoming, ...outgoing];
    const alone = ids.map((id) => ({ incoming: new Set([id]), outgoing: new Set<number>() }));
    return alone.flatMap((one) => takeConfirmed.call(this, one));
  };
  return () => {
    ReadOnly.prototype.takeConfirmed = takeConfirmed;
  };
}

function staleAck(): () => void {
  const { receiveAck } = ReadOnly.prototype;
  ReadOnly.prototype.receiveAck = function (this: ReadOnly, from, context) {
    receiveAck.call(this, from, context.length === 0 ? context : this.heartbeatContext());
  };
  return () => {
    ReadOnly.prototype.receiveAck = receiveAck;
  };
}

function ignoreOutgoing(): () => void {
  const { committed } = ProgressTracker.prototype;
  ProgressTracker.prototype.committed = function (this: ProgressTracker) {
    const { incoming } = this.config.voters;
    return majorityCommittedIndex(incoming, (id) => this.get(id)?.match);
  };
  return () => {
    ProgressTracker.prototype.committed = committed;
  };
}
