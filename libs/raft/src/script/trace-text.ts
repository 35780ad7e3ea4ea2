import type { TraceEvent, VoteTrace } from "../core/trace.ts";
import type { EntryId } from "../log/entry.ts";
import {
  describeConfChange,
  describeConfig,
  describeProgress,
  hex,
  protoConfState,
  ROLE_NAMES,
} from "./describe.ts";

/** How much a log line matters. */
export type TraceLevel = "DEBUG" | "INFO" | "WARN" | "ERROR";

type Kind = TraceEvent["kind"];
/** The event of a kind, also where several kinds share one shape. */
type EventOf<K extends Kind, E = TraceEvent> = E extends { readonly kind: infer Kinds }
  ? K extends Kinds
    ? E
    : never
  : never;
type Formatters = { readonly [K in Kind]: (event: EventOf<K>) => [TraceLevel, string] };

const ROLE_TEXT = {
  follower: "follower",
  preCandidate: "pre-candidate",
  candidate: "candidate",
  leader: "leader",
};

function at({ term, index }: EntryId): string {
  return `[logterm: ${term}, index: ${index}]`;
}

function named({ index, term }: EntryId): string {
  return `[index: ${index}, term: ${term}]`;
}

/** The common part of the lines about a vote request, around the verb. */
function vote(event: VoteTrace, verb: string, preposition: string): string {
  const { id, last, vote: given, type, from, candidateLast, term } = event;
  return (
    `${hex(id)} [logterm: ${last.term}, index: ${last.index}, vote: ${hex(given)}] ${verb} ${type} ` +
    `${preposition} ${hex(from)} ${at(candidateLast)} at term ${term}`
  );
}

const ELECTION = {
  started: ({ id, voters, term, commit, applied, last }) => [
    "INFO",
    `newRaft ${hex(id)} [peers: [${voters.map(hex).join(",")}], term: ${term}, ` +
      `commit: ${commit}, applied: ${applied}, lastindex: ${last.index}, lastterm: ${last.term}]`,
  ],
  roleChanged: ({ id, role, term }) => [
    "INFO",
    `${hex(id)} became ${ROLE_TEXT[role]} at term ${term}`,
  ],
  hupIgnoredAsLeader: ({ id }) => ["DEBUG", `${hex(id)} ignoring MsgHup because already leader`],
  unpromotable: ({ id }) => ["WARN", `${hex(id)} is unpromotable and can not campaign`],
  pendingConfChanges: ({ id, term }) => [
    "WARN",
    `${hex(id)} cannot campaign at term ${term} since there are still pending configuration changes to apply`,
  ],
  electionStarted: ({ id, term }) => [
    "INFO",
    `${hex(id)} is starting a new election at term ${term}`,
  ],
  quorumInactive: ({ id }) => [
    "WARN",
    `${hex(id)} stepped down to follower since quorum is not active`,
  ],
  voteRequested: ({ id, last, type, to, term }) => [
    "INFO",
    `${hex(id)} ${at(last)} sent ${type} request to ${hex(to)} at term ${term}`,
  ],
  voteReceived: ({ id, type, granted, from, term }) => [
    "INFO",
    `${hex(id)} received ${type}${granted ? "" : " rejection"} from ${hex(from)} at term ${term}`,
  ],
  voteTally: ({ id, type, granted, rejected }) => [
    "INFO",
    `${hex(id)} has received ${granted} ${type} votes and ${rejected} vote rejections`,
  ],
  voteCast: (event) => ["INFO", vote(event, "cast", "for")],
  voteRejected: (event) => ["INFO", vote(event, "rejected", "from")],
  voteIgnoredInLease: (event) => [
    "INFO",
    `${vote(event, "ignored", "from")}: lease is not expired (remaining ticks: ${event.remainingTicks})`,
  ],
  electionTimerReset: ({ id, elapsedTicks }) => [
    "INFO",
    `${hex(id)} restarted its election timer after ${elapsedTicks} ticks at once`,
  ],
  higherTerm: ({ id, term, type, from, messageTerm }) => [
    "INFO",
    `${hex(id)} [term: ${term}] received a ${type} message with higher term from ${hex(from)} [term: ${messageTerm}]`,
  ],
  lowerTermIgnored: ({ id, term, type, from, messageTerm }) => [
    "INFO",
    `${hex(id)} [term: ${term}] ignored a ${type} message with lower term from ${hex(from)} [term: ${messageTerm}]`,
  ],
  staleAppendIgnored: ({ id, term, type, messageTerm }) => [
    "INFO",
    `${hex(id)} [term: ${term}] ignored entry appends from a ${type} message with lower term [term: ${messageTerm}]`,
  ],
} satisfies Partial<Formatters>;

const PROPOSALS = {
  proposalWithoutLeader: ({ id, term }) => [
    "INFO",
    `${hex(id)} no leader at term ${term}; dropping proposal`,
  ],
  readWithoutLeader: ({ id, term }) => [
    "INFO",
    `${hex(id)} no leader at term ${term}; dropping index reading msg`,
  ],
  transferWithoutLeader: ({ id, term }) => [
    "INFO",
    `${hex(id)} no leader at term ${term}; dropping leader transfer msg`,
  ],
  proposalOverLimit: ({ id }) => [
    "WARN",
    `${hex(id)} appending new entries to log would exceed uncommitted entry size limit; dropping proposal`,
  ],
  readOverLimit: ({ id }) => [
    "WARN",
    `${hex(id)} has too many pending reads; dropping index reading msg`,
  ],
  malformedReadResponse: ({ id }) => ["ERROR", `${hex(id)} invalid format of MsgReadIndexResp`],
  forgetLeaderIgnored: () => ["ERROR", "ignoring MsgForgetLeader due to ReadOnlyLeaseBased"],
  proposalNotForwarded: ({ id, lead, term }) => [
    "INFO",
    `${hex(id)} not forwarding to leader ${hex(lead)} at term ${term}; dropping proposal`,
  ],
  proposalDuringTransfer: ({ id, term, transferee }) => [
    "DEBUG",
    `${hex(id)} [term ${term}] transfer leadership to ${hex(transferee)} is in progress; dropping proposal`,
  ],
  leaderForgotten: ({ id, lead, term }) => [
    "INFO",
    `${hex(id)} forgetting leader ${hex(lead)} at term ${term}`,
  ],
  confChangeIgnored: ({ id, change, config, reason }) => [
    "INFO",
    `${hex(id)} ignoring conf change ${describeConfChange(change)} at config ${describeConfig(config)}: ${reason}`,
  ],
  configSwitched: ({ id, config }) => [
    "INFO",
    `${hex(id)} switched to configuration ${describeConfig(config)}`,
  ],
  autoLeaveStarted: ({ config }) => [
    "INFO",
    `initiating automatic transition out of joint configuration ${describeConfig(config)}`,
  ],
  autoLeaveDropped: ({ config }) => [
    "DEBUG",
    `not initiating automatic transition out of joint configuration ${describeConfig(config)}: raft proposal dropped`,
  ],
  transferToLearner: ({ id }) => [
    "DEBUG",
    `${hex(id)} is learner. Ignored transferring leadership`,
  ],
  transferToSelf: ({ id }) => [
    "DEBUG",
    `${hex(id)} is already leader. Ignored transferring leadership to self`,
  ],
  transferRepeated: ({ id, term, peer }) => [
    "INFO",
    `${hex(id)} [term ${term}] transfer leadership to ${hex(peer)} is in progress, ignores request to same node ${hex(peer)}`,
  ],
  transferAborted: ({ id, term, peer }) => [
    "INFO",
    `${hex(id)} [term ${term}] abort previous transferring leadership to ${hex(peer)}`,
  ],
  transferStarted: ({ id, term, peer }) => [
    "INFO",
    `${hex(id)} [term ${term}] starts to transfer leadership to ${hex(peer)}`,
  ],
  timeoutNowSent: ({ id, peer }) => [
    "INFO",
    `${hex(id)} sent MsgTimeoutNow to ${hex(peer)} after received MsgAppResp`,
  ],
  timeoutNowSentAtOnce: ({ id, peer }) => [
    "INFO",
    `${hex(id)} sends MsgTimeoutNow to ${hex(peer)} immediately as ${hex(peer)} already has up-to-date log`,
  ],
  timeoutNowReceived: ({ id, term, peer }) => [
    "INFO",
    `${hex(id)} [term ${term}] received MsgTimeoutNow from ${hex(peer)} and starts an election to get leadership.`,
  ],
  timeoutNowIgnored: ({ id, term, peer, role }) => [
    "DEBUG",
    `${hex(id)} [term ${term} state ${ROLE_NAMES[role]}] ignored MsgTimeoutNow from ${hex(peer)}`,
  ],
} satisfies Partial<Formatters>;

const REPLICATION = {
  noProgress: ({ id, from }) => ["DEBUG", `${hex(id)} no progress available for ${hex(from)}`],
  appendRejected: ({ id, index, ours, theirs, from }) => [
    "DEBUG",
    `${hex(id)} [logterm: ${ours}, index: ${index}] rejected MsgApp [logterm: ${theirs}, index: ${index}] from ${hex(from)}`,
  ],
  rejectionReceived: ({ id, from, index, hint }) => [
    "DEBUG",
    `${hex(id)} received MsgAppResp(rejected, hint: (index ${hint.index}, term ${hint.term})) from ${hex(from)} for index ${index}`,
  ],
  progressDecreased: ({ id, to, progress }) => [
    "DEBUG",
    `${hex(id)} decreased progress of ${hex(to)} to [${describeProgress(progress)}]`,
  ],
  snapshotRecovered: ({ id, to, progress }) => [
    "DEBUG",
    `${hex(id)} recovered from needing snapshot, resumed sending replication messages to ${hex(to)} [${describeProgress(progress)}]`,
  ],
  snapshotSucceeded: ({ id, to, progress }) => [
    "DEBUG",
    `${hex(id)} snapshot succeeded, resumed sending replication messages to ${hex(to)} [${describeProgress(progress)}]`,
  ],
  snapshotFailed: ({ id, to, progress }) => [
    "DEBUG",
    `${hex(id)} snapshot failed, resumed sending replication messages to ${hex(to)} [${describeProgress(progress)}]`,
  ],
  unreachable: ({ id, to, progress }) => [
    "DEBUG",
    `${hex(id)} failed to send message to ${hex(to)} because it is unreachable [${describeProgress(progress)}]`,
  ],
  replicationPaused: ({ id, to, progress }) => [
    "DEBUG",
    `${hex(id)} paused sending replication messages to ${hex(to)} [${describeProgress(progress)}]`,
  ],
  snapshotToInactive: ({ to }) => [
    "DEBUG",
    `ignore sending snapshot to ${hex(to)} since it is not recently active`,
  ],
  snapshotUnavailable: ({ id, to }) => [
    "DEBUG",
    `${hex(id)} failed to send snapshot to ${hex(to)} because snapshot is temporarily unavailable`,
  ],
  snapshotSent: ({ id, firstIndex, commit, snapshot, to, progress }) => [
    "DEBUG",
    `${hex(id)} [firstindex: ${firstIndex}, commit: ${commit}] sent snapshot${named(snapshot)} to ${hex(to)} [${describeProgress(progress)}]`,
  ],
  snapshotHandled: ({ id, commit, restored, snapshot }) => [
    "INFO",
    `${hex(id)} [commit: ${commit}] ${restored ? "restored" : "ignored"} snapshot ${named(snapshot)}`,
  ],
  snapshotNotFollower: ({ id }) => [
    "WARN",
    `${hex(id)} attempted to restore snapshot as leader; should never happen`,
  ],
  snapshotWithoutSelf: ({ id, confState }) => [
    "WARN",
    `${hex(id)} attempted to restore snapshot but it is not in the ConfState ${protoConfState(confState)}; should never happen`,
  ],
  snapshotFastForward: ({ id, commit, last, snapshot }) => [
    "INFO",
    `${hex(id)} [commit: ${commit}, lastindex: ${last.index}, lastterm: ${last.term}] fast-forwarded commit to snapshot ${named(snapshot)}`,
  ],
  snapshotRestored: ({ id, commit, last, snapshot }) => [
    "INFO",
    `${hex(id)} [commit: ${commit}, lastindex: ${last.index}, lastterm: ${last.term}] restored snapshot ${named(snapshot)}`,
  ],
  logRestore: ({ log, index, term }) => [
    "INFO",
    `log [committed=${log.committed}, applied=${log.applied}, applying=${log.applying}, ` +
      `unstable.offset=${log.unstable.offset}, unstable.offsetInProgress=${log.unstable.inProgressEnd}, ` +
      `len(unstable.Entries)=${log.unstable.length}] starts to restore snapshot ${named({ index, term })}`,
  ],
  conflict: ({ index, existingTerm, conflictingTerm }) => [
    "INFO",
    `found conflict at index ${index} [existing term: ${existingTerm}, conflicting term: ${conflictingTerm}]`,
  ],
  stableEntryMissing: ({ index }) => [
    "INFO",
    `entry at index ${index} missing from unstable log; ignoring`,
  ],
  stableEntryIsSnapshot: ({ index }) => [
    "INFO",
    `entry at index ${index} matched unstable snapshot; ignoring`,
  ],
  stableEntryMismatch: ({ id, unstableTerm }) => [
    "INFO",
    `entry at (index,term)=(${id.index},${id.term}) mismatched with entry at (${id.index},${unstableTerm}) in unstable log; ignoring`,
  ],
  unstableReplaced: ({ index }) => ["INFO", `replace the unstable entries from index ${index}`],
  unstableTruncated: ({ index }) => ["INFO", `truncate the unstable entries before index ${index}`],
} satisfies Partial<Formatters>;

const FORMATTERS: Formatters = { ...ELECTION, ...PROPOSALS, ...REPLICATION };

/** A trace event as the log line that the scripts know, with its level. */
export function traceText(event: TraceEvent): [TraceLevel, string] {
  // The table has one entry per kind that takes that kind's event, which the compiler cannot follow.
  const format = FORMATTERS[event.kind] as (event: TraceEvent) => [TraceLevel, string];
  return format(event);
}
