import type { Message } from "@heddle/raft/core/message";
import type { SnapshotId } from "@heddle/storage/snapshot-store";
import type { Transport } from "../ports.ts";
import type { DurableLog } from "../replica/durable-log.ts";
import type { SnapshotTaker } from "./snapshot-taker.ts";

/**
 * Sends this member's newest snapshot to others. One whose own file cannot be read is set aside and
 * replaced by one of the state in memory: else sending would fail forever.
 */
export class SnapshotSender {
  readonly #log: DurableLog;
  readonly #transport: Transport;
  readonly #snapshots: SnapshotTaker;
  /** One at a time: a second one would set aside what the first has just written. */
  #repairing: Promise<void> | undefined;

  constructor(log: DurableLog, transport: Transport, snapshots: SnapshotTaker) {
    this.#log = log;
    this.#transport = transport;
    this.#snapshots = snapshots;
  }

  /**
   * Resolves with whether the member took it in whole; rejects where the disk refuses a new one.
   * Raft tries again, with the newest snapshot, when a member that did not take it answers a
   * heartbeat.
   */
  async send(message: Message): Promise<"delivered" | "failed"> {
    const { snapshot, to } = message;
    if (!snapshot) return "failed";
    const { snapshots } = this.#log;
    let isUnreadable = false;
    const noteUnreadable = (error: unknown): never => {
      isUnreadable = true;
      throw error;
    };
    try {
      const meta = await snapshots.meta(snapshot).catch(noteUnreadable);
      const chunks = watched(snapshots.chunks(snapshot), noteUnreadable);
      await this.#transport.sendSnapshot(to, { message, meta, chunks });
      return "delivered";
    } catch {
      if (isUnreadable) await this.repair(snapshot);
      return "failed";
    }
  }

  /**
   * Puts a whole snapshot in the place of one whose file is damaged or gone; does nothing where the
   * file is whole. Rejects where the disk refuses that, which no member may continue after: it could not
   * shorten its log any more, nor bring up others.
   */
  repair(id: SnapshotId): Promise<void> {
    this.#repairing ??= this.#repair(id).finally(() => {
      this.#repairing = undefined;
    });
    return this.#repairing;
  }

  async #repair(id: SnapshotId): Promise<void> {
    const log = this.#log;
    // It may have been read while another one's repair, or a newer snapshot, took its place.
    const damage = await log.snapshots.damage(id);
    if (!damage) return;
    await log.setAside(id, damage);
    if (id.index === log.snapshotIndex) await this.#snapshots.renew();
  }
}

/** The same chunks; calls `onError` with errors of the source alone, not of the consumer. */
async function* watched(
  chunks: AsyncIterable<Uint8Array>,
  onError: (error: unknown) => never,
): AsyncGenerator<Uint8Array, void, undefined> {
  const source = chunks[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await source.next().catch(onError);
      if (next.done) return;
      yield next.value;
    }
  } finally {
    await source.return?.();
  }
}
