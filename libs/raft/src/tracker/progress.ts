import { invariant } from "../invariant.ts";
import { Inflights } from "./inflights.ts";

/**
 * How a leader replicates to a follower.
 *
 * - `probe` sends one append at a time until the leader knows where the logs match.
 * - `replicate` streams appends optimistically.
 * - `snapshot` waits until the follower has restored a snapshot.
 */
export type ProgressState = "probe" | "replicate" | "snapshot";

interface ProgressInit {
  readonly next: number;
  readonly match: number;
  readonly inflights: Inflights;
  readonly isLearner: boolean;
  readonly recentActive: boolean;
}

/** A leader's view of the log of one follower, or of its own. */
export class Progress {
  /** The follower's log is known to match the leader's up to here. */
  match: number;
  /** The next entry to send; always above `match`, and in `snapshot` pendingSnapshot + 1. */
  next: number;
  state: ProgressState = "probe";
  /** The index of the snapshot in flight; 0 unless the state is `snapshot`. */
  pendingSnapshot = 0;
  /** True if the follower responded since the last quorum check; always true on the leader. */
  recentActive: boolean;
  /** `recentActive` as of the last quorum check; undefined before the first one of a term. */
  wasActive: boolean | undefined;
  /** True while appends wait for a reply or a heartbeat reply; see `paused`. */
  appendsPaused = false;
  isLearner: boolean;
  /** The highest commit index sent and not known to be lost. */
  #sentCommit = 0;
  /** The appends in flight; used in `replicate` only. */
  readonly inflights: Inflights;

  constructor(init: ProgressInit) {
    this.match = init.match;
    this.next = init.next;
    this.inflights = init.inflights;
    this.isLearner = init.isLearner;
    this.recentActive = init.recentActive;
  }

  /** A copy that shares the inflights, for building a configuration without touching this one. */
  clone(): Progress {
    const copy = new Progress(this);
    copy.wasActive = this.wasActive;
    copy.state = this.state;
    copy.pendingSnapshot = this.pendingSnapshot;
    copy.appendsPaused = this.appendsPaused;
    copy.#sentCommit = this.#sentCommit;
    return copy;
  }

  #enter(state: ProgressState): void {
    this.appendsPaused = false;
    this.pendingSnapshot = 0;
    this.state = state;
    this.inflights.reset();
  }

  becomeProbe(): void {
    // A delivered snapshot moves the first probe to the entry after it.
    const delivered = this.state === "snapshot" ? this.pendingSnapshot : 0;
    this.#enter("probe");
    this.next = Math.max(this.match, delivered) + 1;
    this.#lowerSentCommit();
  }

  becomeReplicate(): void {
    this.#enter("replicate");
    this.next = this.match + 1;
  }

  becomeSnapshot(index: number): void {
    this.#enter("snapshot");
    this.pendingSnapshot = index;
    this.next = index + 1;
    this.#sentCommit = index;
  }

  /** Records that an append with `count` entries and `bytes` payload bytes was sent. */
  sentEntries(count: number, bytes: number): void {
    invariant(this.state !== "snapshot", () => "an append was sent while a snapshot is pending");
    if (this.state === "probe") {
      if (count > 0) this.appendsPaused = true;
      return;
    }
    if (count > 0) {
      this.next += count;
      this.inflights.add(this.next - 1, bytes);
    }
    // Once the window is full this message serves as a probe, and appends wait for its answer.
    this.appendsPaused = this.inflights.full;
  }

  /** True if sending this commit index could raise the follower's commit index. */
  canBumpCommit(commit: number): boolean {
    return commit > this.#sentCommit && this.#sentCommit < this.next - 1;
  }

  sentCommit(commit: number): void {
    this.#sentCommit = commit;
  }

  /** Records an acknowledgement; false if it is not new. */
  maybeUpdate(index: number): boolean {
    if (index <= this.match) return false;
    this.match = index;
    this.next = Math.max(this.next, index + 1);
    this.appendsPaused = false;
    return true;
  }

  /**
   * Records the rejection of an append after entry `rejected`; `matchHint` is where the logs may
   * match. False if the rejection is stale, which is certain only without reordering.
   */
  maybeDecreaseTo(rejected: number, matchHint: number): boolean {
    if (this.state === "replicate") {
      if (rejected <= this.match) return false;
      this.next = this.match + 1;
      this.#lowerSentCommit();
      return true;
    }
    if (this.next - 1 !== rejected) return false;
    this.next = Math.max(Math.min(rejected, matchHint + 1), this.match + 1);
    this.#lowerSentCommit();
    this.appendsPaused = false;
    return true;
  }

  /** True if no append may be sent now. */
  get paused(): boolean {
    return this.state === "snapshot" || this.appendsPaused;
  }

  #lowerSentCommit(): void {
    this.#sentCommit = Math.min(this.#sentCommit, this.next - 1);
  }
}
