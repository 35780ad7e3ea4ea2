import { invariant } from "../invariant.ts";
import { RaftLog } from "../log/raft-log.ts";
import { ProgressTracker } from "../tracker/tracker.ts";
import type { ResolvedConfig } from "./config.ts";
import { createMessage, type Message, type MessageInit, type MessageType } from "./message.ts";
import { ReadOnly } from "./read-only.ts";
import { type HardState, NO_NODE, type ReadState, type Role, type SoftState } from "./state.ts";
import type { TraceSink } from "./trace.ts";

/** Why a node did not take a proposal or a read; nothing of it was logged or sent. */
type DropReason =
  | "noLeader"
  | "notForwarding"
  | "notMember"
  | "transferringLeadership"
  | "tooManyUncommitted"
  | "tooManyReads";

/** Whether a node took an input in; a message that is merely out of date is taken in and ignored. */
export type StepResult =
  | { readonly ok: true }
  | { readonly ok: false; readonly error: "dropped"; readonly reason: DropReason }
  | { readonly ok: false; readonly error: "localMessage" | "unknownPeer" };

/** The input was taken in. */
export const STEPPED: StepResult = { ok: true };

/** The input was refused, and the caller may try again later or elsewhere. */
export function dropped(reason: DropReason): StepResult {
  return { ok: false, error: "dropped", reason };
}

const VOTES: ReadonlySet<MessageType> = new Set<MessageType>([
  "MsgVote",
  "MsgVoteResp",
  "MsgPreVote",
  "MsgPreVoteResp",
]);

/** Responses that promise something about this node's durable state. */
const AFTER_APPEND: ReadonlySet<MessageType> = new Set<MessageType>([
  "MsgAppResp",
  "MsgVoteResp",
  "MsgPreVoteResp",
]);

/**
 * The state of one node and the transitions between its roles. What a node does with a message is
 * in the functions of step.ts, leader.ts, candidate.ts and follower.ts, which work on this state.
 */
export class Raft {
  readonly config: ResolvedConfig;
  readonly log: RaftLog;
  readonly tracker: ProgressTracker;
  readonly trace: TraceSink | undefined;

  /** The latest term this node has seen; never goes back. */
  term = 0;
  /** Who got this node's vote in `term`; changes at most once a term, from NO_NODE. */
  vote: number = NO_NODE;
  /** The leader of `term` as far as known; on a leader its own id. */
  lead: number = NO_NODE;
  role: Role = "follower";
  /** The active configuration is as of this index; conf changes up to it are in it. */
  configIndex = 0;
  /** True if the active configuration has this node as a learner. */
  isLearner = false;

  /** Messages to peers that may leave at once. */
  messages: Message[] = [];
  /**
   * Responses, to peers and to this node itself, that may leave only when everything unstable now
   * is durable: votes and acknowledgements must survive a crash (Raft thesis, section 3.8).
   */
  messagesAfterAppend: Message[] = [];
  /** Reads that are answered and not handed over yet. */
  readStates: ReadState[] = [];

  /** On a leader: who leadership is being transferred to, else NO_NODE. */
  leadTransferee: number = NO_NODE;
  /** On a leader: a conf change may be unapplied up to here, so none may be proposed before. */
  pendingConfIndex = 0;
  /** On a leader: at most the payload bytes in its log that are not known to be applied. */
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

  /** What every trace event of this node carries. */
  get stamp(): { id: number; term: number } {
    return { id: this.config.id, term: this.term };
  }

  /** Queues a message with this node's term, at once or for after the next append by its type. */
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
    // Proposals and reads act as local messages wherever they arrive, whatever the term there.
    return init.type === "MsgProp" || init.type === "MsgReadIndex" ? 0 : this.term;
  }

  becomeFollower(term: number, lead: number): void {
    this.reset(term);
    this.lead = lead;
    this.#enter("follower");
  }

  becomePreCandidate(): void {
    invariant(this.role !== "leader", () => "a leader cannot become a pre-candidate");
    // Term and vote stay: a pre-vote promises nothing and asks for no promise.
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

  /** Starts afresh in a term: no leader, no votes, nothing known of other logs. */
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

  /** True if this node may become leader: a voter with no snapshot still to be restored. */
  get promotable(): boolean {
    const progress = this.tracker.get(this.id);
    return progress !== undefined && !progress.isLearner && !this.log.hasUnstableSnapshot;
  }

  /** True once a leader has committed an entry of its term, and so knows what is committed. */
  get committedInTerm(): boolean {
    return this.log.termOrZero(this.log.committed) === this.term;
  }
}
