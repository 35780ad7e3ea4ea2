import type { ThreadCounts } from "@heddle/consensus/thread/thread-counts";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { addedKind, type StateKind } from "@heddle/control/state-limits";
import type { RaftCounts } from "../control-group.ts";

/** Counts what a master's replica does on the main thread. */
export class ReplicaCounts {
  #proposals = 0;
  #proposalsFailed = 0;
  #proposalSeconds = 0;
  readonly #refusedForRoom: Record<StateKind, number> = {
    jobs: 0,
    catalog: 0,
    cluster: 0,
    documents: 0,
  };
  snapshotsTaken = 0;
  snapshotsInstalled = 0;

  /** With what the Raft thread has counted. */
  view(inThread: ThreadCounts): RaftCounts {
    return {
      ...inThread,
      proposals: this.#proposals,
      proposalsFailed: this.#proposalsFailed,
      proposalSeconds: this.#proposalSeconds,
      refusedForRoom: this.#refusedForRoom,
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

  /** Counts what of a command the state had no room for. */
  answered({ type }: ControlCommand, reply: ControlReply): void {
    if (reply.ok) {
      for (const { why } of reply.refused ?? [])
        if (why === "state_full") this.#refusedForRoom.jobs++;
    } else if (reply.code === "insufficient_storage") {
      this.#refusedForRoom[addedKind(type) ?? "jobs"]++;
    }
  }
}
