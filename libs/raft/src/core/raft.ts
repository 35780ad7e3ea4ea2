import { invariant } from "../invariant.ts";
import { RaftLog } from "../log/raft-log.ts";
import { ProgressTracker } from "../tracker/tracker.ts";
import type { ResolvedConfig } from "./config.ts";
import { createMessage, type Message, type MessageInit, type MessageType } from "./message.ts";
import { ReadOnly } from "./read-only.ts";
import { type HardState, NO_NODE, type ReadState, type Role, type SoftState } from "./state.ts";
import type { TraceSink } from "./trace.ts";

/** Why a node refused a proposal or a read; nothing was logged or sent. */
type DropReason =
  | "noLeader"
  | "notForwarding"
  | "notMember"
  | "transferringLeadership"
  | "tooManyUncommitted"
  | "tooManyReads";

/** Whether a node accepted an input; a stale message is accepted and ignored. */
export type StepResult =
  | { readonly ok: true }
  | { readonly ok: false; readonly error: "dropped"; readonly reason: DropReason }
  | { readonly ok: false; readonly error: "localMessage" | "unknownPeer" };

/** The input was accepted. */
export const STEPPED: StepResult = { ok: true };

/** The input was refused; the caller may retry later or elsewhere. */
export function dropped(reason: DropReason): StepResult {
  return { ok: false, error: "dropped", reason };
}

const VOTES: ReadonlySet<MessageType> = new Set<MessageType>([
  "MsgVote",
  "MsgVoteResp",
  "MsgPreVote",
  "MsgPreVoteResp",
]);

/** Responses that depend on this node's durable state. */
const AFTER_APPEND: ReadonlySet<MessageType> = new Set<MessageType>([
  "MsgAppResp",
  "MsgVoteResp",
  "MsgPreVoteResp",
]);

/**
 * The state of one node and the transitions between its roles. The functions of step.ts, leader.ts,
 * candidate.ts and follower.ts process messages on this state.
 */
export class Raft {
  readonly config: ResolvedConfig;
  readonly log: RaftLog;
  readonly tracker: ProgressTracker;
  readonly trace: TraceSink | undefined;

  /** The latest term this node has seen; never decreases. */
  term = 0;
  /**
   * The candidate that got this node's vote in `term`; changes at most once a term, from NO_NODE.
   */
  vote: number = NO_NODE;
  /** The known leader of `term`; on a leader its own id. */
  lead: number = NO_NODE;
  role: Role = "follower";
  /** The active configuration is as of this index and contains conf changes up to it. */
  configIndex = 0;

  /** Messages to peers that may leave at once. */
  messages: Message[] = [];
  /**
   * Responses, to peers and to this node itself, that wait until all unstable state is durable.
   * Votes and acknowledgements must survive a crash (Raft thesis, section 3.8).
   */
  messagesAfterAppend: Message[] = [];
  /** Answered reads that the driver does not have yet. */
  readStates: ReadState[] = [];

  /** On a leader: the target of a leadership transfer, else NO_NODE. */
  leadTransferee: number = NO_NODE;
  /** On a leader: a conf change may be unapplied up to here, so none may be proposed before. */
  pendingConfIndex = 0;
  /**
   * On a leader: an upper bound on the payload bytes in its log that are not known to be applied.
   */
  uncommittedBytes = 0;
  /** On a leader: the reads of this term. */
  readOnly = new ReadOnly();
  /** On a leader: reads that wait for the first commit of its term. */
  postponedReads: Message[] = [];

  /** Ticks since the election timer was restarted; on a leader since the last quorum check. */
  electionElapsed = 0;
  /** On a leader: ticks since the last heartbeat. */
  heartbeatElapsed = 0;
  /** The election timeout of this role; in [electionTicks, 2 * electionTicks). */
  randomizedElectionTicks = 0;

  constructor(config: ResolvedConfig) {
    this.config = config;
    this.trace = config.trace;
    this.log = new RaftLog(config.storage, config.maxApplyingBytes, config.trace);
    this.tracker = new ProgressTracker(config.maxInflightMessages, config.maxInflightBytes);
  }

  get id(): number {
    return this.config.id;
  }

  get softState(): SoftState {
    return { lead: this.lead, role: this.role };
  }

  get hardState(): HardState {
    return { term: this.term, vote: this.vote, commit: this.log.committed };
  }

  /** The fields common to every trace event of this node. */
  get stamp(): { id: number; term: number } {
    return { id: this.config.id, term: this.term };
  }

  /**
   * Queues a message with this node's term; its type decides whether it waits for the next append.
   */
  send(init: MessageInit): void {
    const message = createMessage(init, init.from || this.id, this.#termOf(init));
    if (AFTER_APPEND.has(message.type)) {
      this.messagesAfterAppend.push(message);
      return;
    }
    invariant(message.to !== this.id, () => `${message.type} would be sent to this node itself`);
    this.messages.push(message);
  }

  #termOf(init: MessageInit): number {
    const term = init.term ?? 0;
    if (VOTES.has(init.type)) {
      invariant(term !== 0, () => `${init.type} needs the term that the vote is for`);
      return term;
    }
    invariant(term === 0, () => `${init.type} takes the term of this node, not ${term}`);
    // Proposals and reads act as local messages on every node, whatever its term.
    return init.type === "MsgProp" || init.type === "MsgReadIndex" ? 0 : this.term;
  }

  becomeFollower(term: number, lead: number): void {
    this.reset(term);
    this.lead = lead;
    this.#enter("follower");
  }

  becomePreCandidate(): void {
    invariant(this.role !== "leader", () => "a leader cannot become a pre-candidate");
    // Term and vote stay: a pre-vote changes no durable state.
    this.tracker.resetVotes();
    this.lead = NO_NODE;
    this.#enter("preCandidate");
  }

  becomeCandidate(): void {
    invariant(this.role !== "leader", () => "a leader cannot become a candidate");
    this.reset(this.term + 1);
    this.vote = this.id;
    this.#enter("candidate");
  }

  #enter(role: Role): void {
    this.role = role;
    this.trace?.({ kind: "roleChanged", ...this.stamp, role });
  }

  /** Resets the state for a term: no leader, no votes, no known progress of other logs. */
  reset(term: number): void {
    if (this.term !== term) {
      this.term = term;
      this.vote = NO_NODE;
    }
    this.lead = NO_NODE;
    this.electionElapsed = 0;
    this.heartbeatElapsed = 0;
    const { electionTicks, random } = this.config;
    this.randomizedElectionTicks = electionTicks + Math.floor(random() * electionTicks);
    this.leadTransferee = NO_NODE;
    this.tracker.resetVotes();
    this.tracker.resetProgress(this.id, this.log.lastIndex);
    this.pendingConfIndex = 0;
    this.uncommittedBytes = 0;
    this.readOnly = new ReadOnly();
    this.postponedReads = [];
  }

  /** True if this node may become leader: a voter without a pending snapshot. */
  get promotable(): boolean {
    const progress = this.tracker.get(this.id);
    return progress !== undefined && !progress.isLearner && !this.log.hasUnstableSnapshot;
  }

  /** True once a leader has committed an entry of its term, and so knows the commit index. */
  get committedInTerm(): boolean {
    return this.log.termOrZero(this.log.committed) === this.term;
  }
}
