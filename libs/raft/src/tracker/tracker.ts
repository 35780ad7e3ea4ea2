import type { ConfState } from "../core/state.ts";
import { Inflights } from "./inflights.ts";
import { Progress } from "./progress.ts";
import {
  committedIndex,
  type JointConfig,
  sortedIds,
  type VoteResult,
  voteResult,
} from "./quorum.ts";

/** The active membership. */
export interface TrackerConfig {
  readonly voters: JointConfig;
  /** True if the configuration is joint and the leader leaves it automatically. */
  readonly autoLeave: boolean;
  /** Members without a vote; disjoint from both halves of `voters`. */
  readonly learners: ReadonlySet<number>;
  /**
   * Voters that become learners: they are still in the outgoing half and so may not be in
   * `learners` yet. Empty unless the configuration is joint.
   */
  readonly learnersNext: ReadonlySet<number>;
}

/** The progress of each member by its id. */
export type ProgressMap = ReadonlyMap<number, Progress>;

/** A membership together with the progress of each of its members. */
export interface TrackedConfig {
  readonly config: TrackerConfig;
  readonly progress: ProgressMap;
}

/** No members; the start of every configuration change. */
export const EMPTY_CONFIG: TrackedConfig = {
  config: {
    voters: { incoming: new Set(), outgoing: new Set() },
    autoLeave: false,
    learners: new Set(),
    learnersNext: new Set(),
  },
  progress: new Map(),
};

/** The members, the replication progress of each, and their votes. */
export class ProgressTracker {
  readonly #maxInflightMessages: number;
  readonly #maxInflightBytes: number;
  #config: TrackerConfig = EMPTY_CONFIG.config;
  /** Has exactly the members of #config as keys. */
  #progress: ProgressMap = EMPTY_CONFIG.progress;
  /** The keys of #progress, ascending, so that messages leave in a fixed order. */
  #ids: readonly number[] = [];
  /** The votes of this election; the first vote of each voter counts. */
  #votes = new Map<number, boolean>();

  constructor(maxInflightMessages: number, maxInflightBytes: number) {
    this.#maxInflightMessages = maxInflightMessages;
    this.#maxInflightBytes = maxInflightBytes;
  }

  get config(): TrackerConfig {
    return this.#config;
  }

  get progress(): ProgressMap {
    return this.#progress;
  }

  /** All members in ascending order. */
  get ids(): readonly number[] {
    return this.#ids;
  }

  switchTo(next: TrackedConfig): void {
    this.#config = next.config;
    this.#progress = next.progress;
    this.#ids = sortedIds(next.progress.keys());
  }

  get(id: number): Progress | undefined {
    return this.#progress.get(id);
  }

  newInflights(): Inflights {
    return new Inflights(this.#maxInflightMessages, this.#maxInflightBytes);
  }

  /** Resets the progress of every member at the start of a term. */
  resetProgress(self: number, lastIndex: number): void {
    const fresh = new Map<number, Progress>();
    for (const [id, old] of this.#progress) {
      const progress = new Progress({
        match: id === self ? lastIndex : 0,
        next: lastIndex + 1,
        inflights: this.newInflights(),
        isLearner: old.isLearner,
        recentActive: false,
      });
      fresh.set(id, progress);
    }
    this.#progress = fresh;
  }

  /** True if the node is the only voter. */
  decidesAlone(id: number): boolean {
    const { incoming, outgoing } = this.#config.voters;
    return incoming.size === 1 && outgoing.size === 0 && incoming.has(id);
  }

  /** The largest index that a quorum is known to store. */
  committed(): number {
    return committedIndex(this.#config.voters, (id) => this.#progress.get(id)?.match);
  }

  /** True if a quorum responded since the last check. */
  quorumActive(): boolean {
    const active = new Map<number, boolean>();
    for (const [id, progress] of this.#progress) {
      if (!progress.isLearner) active.set(id, progress.recentActive);
    }
    return voteResult(this.#config.voters, active) === "won";
  }

  resetVotes(): void {
    this.#votes = new Map();
  }

  recordVote(id: number, granted: boolean): void {
    if (!this.#votes.has(id)) this.#votes.set(id, granted);
  }

  /** True if a voter's answer has arrived. */
  hasVoted(id: number): boolean {
    return this.#votes.has(id);
  }

  /** The votes of the current voters, and the result. */
  tallyVotes(): { granted: number; rejected: number; result: VoteResult } {
    let granted = 0;
    let rejected = 0;
    for (const [id, progress] of this.#progress) {
      const vote = progress.isLearner ? undefined : this.#votes.get(id);
      if (vote === true) granted++;
      if (vote === false) rejected++;
    }
    return { granted, rejected, result: voteResult(this.#config.voters, this.#votes) };
  }

  confState(): ConfState {
    const { voters, learners, learnersNext, autoLeave } = this.#config;
    return {
      voters: sortedIds(voters.incoming),
      learners: sortedIds(learners),
      votersOutgoing: sortedIds(voters.outgoing),
      learnersNext: sortedIds(learnersNext),
      autoLeave,
    };
  }
}
