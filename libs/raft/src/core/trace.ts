import type { EntryId } from "../log/entry.ts";
import type { ConfChange } from "../membership/conf-change.ts";
import type { Progress } from "../tracker/progress.ts";
import type { TrackerConfig } from "../tracker/tracker.ts";
import type { MessageType } from "./message.ts";
import type { ConfState, Role } from "./state.ts";

/** The receiver of trace events. It runs in the middle of a step: it must not call the node. */
export type TraceSink = (event: TraceEvent) => void;

/** The fields common to a node's own events. */
interface ByNode {
  readonly id: number;
  readonly term: number;
}

/** The positions of a log, as far as traces show them. */
interface TracedLog {
  readonly committed: number;
  readonly applied: number;
  readonly applying: number;
  readonly unstable: {
    readonly offset: number;
    readonly inProgressEnd: number;
    readonly length: number;
  };
}

/** A vote request next to the voter's own state. */
export interface VoteTrace extends ByNode {
  readonly last: EntryId;
  readonly vote: number;
  readonly type: MessageType;
  readonly from: number;
  readonly candidateLast: EntryId;
}

/** A message that changed something, or was ignored. */
interface MessageTrace extends ByNode {
  readonly type: MessageType;
  readonly from: number;
  readonly messageTerm: number;
}

/** An action of a leader for a peer. `progress` is live: read it during the call only. */
interface PeerTrace extends ByNode {
  readonly to: number;
  readonly progress: Progress;
}

/**
 * The internal events of a node, as data: for logs, metrics and the scripted tests. Objects in an
 * event belong to the node and may change after the call.
 */
export type TraceEvent =
  | (ByNode & {
      readonly kind: "started";
      readonly voters: readonly number[];
      readonly commit: number;
      readonly applied: number;
      readonly last: EntryId;
    })
  | (ByNode & { readonly kind: "roleChanged"; readonly role: Role })
  // Elections.
  | (ByNode & {
      readonly kind:
        | "hupIgnoredAsLeader"
        | "unpromotable"
        | "pendingConfChanges"
        | "electionStarted"
        | "quorumInactive";
    })
  | (ByNode & {
      readonly kind: "voteRequested";
      readonly last: EntryId;
      readonly type: MessageType;
      readonly to: number;
    })
  | (ByNode & {
      readonly kind: "voteReceived";
      readonly type: MessageType;
      readonly from: number;
      readonly granted: boolean;
    })
  | (ByNode & {
      readonly kind: "voteTally";
      readonly type: MessageType;
      readonly granted: number;
      readonly rejected: number;
    })
  | (VoteTrace & { readonly kind: "voteCast" | "voteRejected" })
  | (VoteTrace & { readonly kind: "voteIgnoredInLease"; readonly remainingTicks: number })
  | (ByNode & { readonly kind: "electionTimerReset"; readonly elapsedTicks: number })
  // Terms.
  | (MessageTrace & { readonly kind: "higherTerm" | "lowerTermIgnored" | "staleAppendIgnored" })
  // Proposals and membership.
  | (ByNode & {
      readonly kind:
        | "proposalWithoutLeader"
        | "readWithoutLeader"
        | "transferWithoutLeader"
        | "proposalOverLimit"
        | "readOverLimit"
        | "malformedReadResponse"
        | "forgetLeaderIgnored";
    })
  | (ByNode & { readonly kind: "proposalNotForwarded"; readonly lead: number })
  | (ByNode & { readonly kind: "proposalDuringTransfer"; readonly transferee: number })
  | (ByNode & { readonly kind: "leaderForgotten"; readonly lead: number })
  | (ByNode & {
      readonly kind: "confChangeIgnored";
      readonly change: ConfChange;
      readonly config: TrackerConfig;
      readonly reason: string;
    })
  | (ByNode & {
      readonly kind: "configSwitched" | "autoLeaveStarted" | "autoLeaveDropped";
      readonly config: TrackerConfig;
    })
  // Replication.
  | (ByNode & { readonly kind: "noProgress"; readonly from: number })
  | (ByNode & {
      readonly kind: "appendRejected";
      readonly index: number;
      readonly ours: number;
      readonly theirs: number;
      readonly from: number;
    })
  | (ByNode & {
      readonly kind: "rejectionReceived";
      readonly from: number;
      readonly index: number;
      readonly hint: EntryId;
    })
  | (PeerTrace & {
      readonly kind:
        | "progressDecreased"
        | "snapshotRecovered"
        | "snapshotSucceeded"
        | "snapshotFailed"
        | "unreachable"
        | "replicationPaused";
    })
  | (ByNode & { readonly kind: "snapshotToInactive" | "snapshotUnavailable"; readonly to: number })
  | (PeerTrace & {
      readonly kind: "snapshotSent";
      readonly firstIndex: number;
      readonly commit: number;
      readonly snapshot: EntryId;
    })
  // Leadership transfer.
  | (ByNode & {
      readonly kind:
        | "transferToLearner"
        | "transferToSelf"
        | "transferRepeated"
        | "transferAborted"
        | "transferStarted"
        | "timeoutNowSent"
        | "timeoutNowSentAtOnce"
        | "timeoutNowReceived";
      readonly peer: number;
    })
  | (ByNode & {
      readonly kind: "timeoutNowIgnored";
      readonly peer: number;
      readonly role: Role;
    })
  // Snapshots.
  | (ByNode & {
      readonly kind: "snapshotHandled";
      readonly commit: number;
      readonly restored: boolean;
      readonly snapshot: EntryId;
    })
  | (ByNode & { readonly kind: "snapshotNotFollower" })
  | (ByNode & { readonly kind: "snapshotWithoutSelf"; readonly confState: ConfState })
  | (ByNode & {
      readonly kind: "snapshotFastForward" | "snapshotRestored";
      readonly commit: number;
      readonly last: EntryId;
      readonly snapshot: EntryId;
    })
  // The log, which does not know the node's id.
  | {
      readonly kind: "logRestore";
      readonly log: TracedLog;
      readonly index: number;
      readonly term: number;
    }
  | {
      readonly kind: "conflict";
      readonly index: number;
      readonly existingTerm: number;
      readonly conflictingTerm: number;
    }
  | {
      readonly kind:
        | "stableEntryMissing"
        | "stableEntryIsSnapshot"
        | "unstableReplaced"
        | "unstableTruncated";
      readonly index: number;
    }
  | { readonly kind: "stableEntryMismatch"; readonly id: EntryId; readonly unstableTerm: number };
