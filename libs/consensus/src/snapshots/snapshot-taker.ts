import type { Applier } from "../replica/applier.ts";
import type { DurableLog } from "../replica/durable-log.ts";

export interface SnapshotTakerParts {
  readonly log: DurableLog;
  readonly applier: Applier<unknown>;
  /** Applied entries after which a snapshot is due. */
  readonly snapshotEntries: number;
  /** Bytes of applied entries after which one is due, so that a log of large entries stays small. */
  readonly snapshotBytes: number;
  /** Runs it between two batches of entries, when the state does not change; resolves after it. */
  readonly betweenBatches: (run: () => void) => Promise<void>;
  readonly isStopped: () => boolean;
  /** Called with the error of a snapshot that could not be written; the replica ends. */
  readonly fail: (error: unknown) => void;
}

/** Takes snapshots of a replica's state, one at a time, as the log grows and when asked to. */
export class SnapshotTaker {
  readonly #parts: SnapshotTakerParts;
  #taking: Promise<void> | undefined;

  constructor(parts: SnapshotTakerParts) {
    this.#parts = parts;
  }

  /** Takes one of the state as of now if there is anything new; resolves when it is in use. */
  async take(): Promise<void> {
    // One that is under way may hold less than what is applied now.
    if (this.#taking) await this.#taking;
    this.#parts.applier.wantsSnapshot = true;
    await this.#takeNext();
  }

  /** Replaces the newest snapshot, whose file is damaged. */
  async renew(): Promise<void> {
    const { log, applier } = this.#parts;
    const damaged = log.snapshotIndex;
    await this.#taking;
    if (log.snapshotIndex > damaged) return;
    applier.renewsSnapshot = true;
    await this.#takeNext();
  }

  /** Resolves when none is under way. */
  async settle(): Promise<void> {
    await this.#taking;
  }

  async #takeNext(): Promise<void> {
    await this.#parts.betweenBatches(() => this.maybeTake());
    await this.#taking;
  }

  /** Begins one if it is due or wanted; to be called between two batches of entries. */
  maybeTake(): void {
    const { applier, log, snapshotEntries, snapshotBytes } = this.#parts;
    const { isStopped, fail, betweenBatches } = this.#parts;
    const entries = applier.applied.index - log.snapshotIndex;
    const isDue = entries >= snapshotEntries || applier.bytesSinceSnapshot >= snapshotBytes;
    const isWanted = isDue || applier.wantsSnapshot || applier.renewsSnapshot;
    if (!isWanted || this.#taking || isStopped()) return;
    this.#taking = applier
      .beginSnapshot()
      ?.catch(fail)
      .finally(() => {
        this.#taking = undefined;
        // A member that was added meanwhile needs one that knows it, and may hold up all else.
        if (applier.wantsSnapshot) void betweenBatches(() => this.maybeTake());
      });
  }
}
