import type { RaftCounts } from "../ports.ts";
import type { ThreadCounts } from "./thread/thread-counts.ts";

/** Counts what a master's replica does on the main thread. */
export class ReplicaCounts {
  #proposals = 0;
  #proposalsFailed = 0;
  #proposalSeconds = 0;
  snapshotsTaken = 0;
  snapshotsInstalled = 0;

  /** With what the Raft thread has counted. */
  view(inThread: ThreadCounts): RaftCounts {
    return {
      ...inThread,
      proposals: this.#proposals,
      proposalsFailed: this.#proposalsFailed,
      proposalSeconds: this.#proposalSeconds,
      snapshotsTaken: this.snapshotsTaken,
      snapshotsInstalled: this.snapshotsInstalled,
    };
  }

  /** Counts a proposal, and its time unless it fails. */
  async proposal<T>(reply: Promise<T>): Promise<T> {
    const beganMs = performance.now();
    this.#proposals++;
    try {
      const value = await reply;
      this.#proposalSeconds += (performance.now() - beganMs) / 1000;
      return value;
    } catch (error) {
      this.#proposalsFailed++;
      throw error;
    }
  }
}
