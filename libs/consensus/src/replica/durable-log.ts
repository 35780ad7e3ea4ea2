import { AppError, toAppError } from "@heddle/base/errors";
import type { Message } from "@heddle/raft/core/message";
import type { ConfState, HardState, Snapshot } from "@heddle/raft/core/state";
import type { Entry } from "@heddle/raft/log/entry";
import { MemoryStorage } from "@heddle/raft/log/memory-storage";
import { type SnapshotId, type SnapshotMeta, SnapshotStore } from "@heddle/storage/snapshot-store";
import type { StorageFiles } from "@heddle/storage/storage-files";
import { WAL_KINDS, type WalRecord } from "@heddle/storage/wal-record";
import type { RecoveredLog, WalOwner } from "@heddle/storage/wal-recovery";
import { WriteAheadLog } from "@heddle/storage/write-ahead-log";
import { entriesOfRecords, entryRecord } from "../proposals/entry-codec.ts";
import { logGap } from "./lost-log.ts";
import type { MembershipState } from "./membership.ts";

export interface DurableLogOptions {
  readonly files: StorageFiles;
  /** Holds `wal/` and `snapshots/`. */
  readonly directory: string;
  readonly owner: WalOwner;
  readonly segmentBytes?: number | undefined;
  /** The entries before a snapshot that stay in memory for other members that lag; 10,000. */
  readonly trailingEntries?: number | undefined;
  /** Bytes that those entries may have in all; 64 MiB. */
  readonly trailingBytes?: number | undefined;
  /** Makes the state machine take in a snapshot; a rejection means that it is damaged. */
  readonly restore: (meta: SnapshotMeta, chunks: AsyncIterable<Uint8Array>) => Promise<void>;
  /** Called with each snapshot that cannot be read, and with what happens to its file. */
  readonly onDamaged: (error: AppError, fate: SnapshotFate) => void;
}

/** A file that cannot be read is kept under another name, or was gone before, or stays as it is. */
export type SnapshotFate = "setAside" | "gone" | "left";

const TRAILING_ENTRIES = 10_000;
const TRAILING_BYTES = 64 * 2 ** 20;
const NO_BYTES = new Uint8Array(0);
/** Why a snapshot that is not damaged cannot be taken in: there is no memory for it, or no key. */
const WHOLE: ReadonlySet<string> = new Set(["insufficient_memory", "precondition_failed"]);

/**
 * A member's durable state. Entries and hard state go to the write-ahead log, the state machine's state
 * to snapshots. Raft reads from memory.
 */
export class DurableLog {
  /** The log as it is on the disk, for the Raft core to read. */
  readonly memory = new MemoryStorage();
  readonly snapshots: SnapshotStore;
  readonly #options: DurableLogOptions;
  readonly #wal: WriteAheadLog;
  /** A commit index that was not worth a write of its own; goes with the next one. */
  #unwrittenState: HardState | undefined;
  /** The newest snapshot on its way into the log; no older one may come after it there. */
  #queuedSnapshot = 0;

  private constructor(options: DurableLogOptions, wal: WriteAheadLog, snapshots: SnapshotStore) {
    this.#options = options;
    this.#wal = wal;
    this.snapshots = snapshots;
  }

  /**
   * Recovers what the directory holds and has the state machine restored. Rejects with
   * `server_error` where acknowledged state is lost, with `conflict` for another member's files.
   */
  static async open(options: DurableLogOptions): Promise<DurableLog> {
    const { files, directory, owner, segmentBytes } = options;
    await files.makeDirectory(directory);
    const snapshots = await SnapshotStore.open(files, `${directory}/snapshots`);
    const { log, recovered } = await WriteAheadLog.open({
      files,
      directory: `${directory}/wal`,
      owner,
      ...(segmentBytes === undefined ? {} : { segmentBytes }),
    });
    const opened = new DurableLog(options, log, snapshots);
    try {
      await opened.#recover(recovered);
    } catch (error) {
      await log.close();
      throw error;
    }
    return opened;
  }

  /** True if nothing was ever written here. */
  get isEmpty(): boolean {
    return this.memory.lastIndex() === 0 && this.memory.initialState().hardState.term === 0;
  }

  /** Index of the newest snapshot; 0 if there is none. */
  get snapshotIndex(): number {
    return this.memory.snapshot().index;
  }

  /**
   * Writes the first snapshot of a new group, the same on each of its first members. A group that
   * begins with another's state starts at that one's position, so that indexes only grow.
   */
  async bootstrap(
    membership: MembershipState,
    chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
    id: SnapshotId = { index: 1, term: 1 },
  ): Promise<void> {
    const state = { term: id.term, vote: 0, commit: id.index };
    await this.snapshots.write(this.#meta(id, membership), chunks);
    await this.#wal.append([snapshotRecord(id), stateRecord(state)]);
    this.memory.applySnapshot({ ...id, confState: membership.confState, data: NO_BYTES });
    this.memory.setHardState(state);
  }

  /** Writes what a MsgStorageAppend holds; resolves when it and all before it are durable. */
  async write(message: Message): Promise<void> {
    const { term, vote, commit, entries, snapshot } = message;
    const newest = term > 0 ? { term, vote, commit } : this.#unwrittenState;
    const onlyCommit = entries.length === 0 && !snapshot && !(newest && this.#mustSync(newest));
    // A commit index alone promises nothing to anyone, so it waits for a write that must be made.
    const state = onlyCommit ? undefined : newest;
    this.#unwrittenState = onlyCommit ? newest : undefined;
    // The state goes first: were the write torn, no entry may be of a later term than the state.
    const records: WalRecord[] = [];
    if (state) records.push(stateRecord(state));
    if (snapshot) {
      records.push(snapshotRecord(snapshot));
      this.#queuedSnapshot = snapshot.index;
    }
    for (const entry of entries) records.push(entryRecord(entry));
    // Even nothing is appended: the responses must wait for the writes before.
    await this.#wal.append(records);
    if (state) this.memory.setHardState(state);
    if (snapshot) this.memory.applySnapshot(withoutData(snapshot));
    this.memory.append(entries);
  }

  /** Resolves when everything so far is durable, a commit index that was not worth a write too. */
  async flush(): Promise<void> {
    const state = this.#unwrittenState;
    this.#unwrittenState = undefined;
    await this.#wal.append(state ? [stateRecord(state)] : []);
    if (state) this.memory.setHardState(state);
  }

  /** Keeps a snapshot of the state machine at an applied index, and drops the log before it. */
  async compact(
    id: SnapshotId,
    membership: MembershipState,
    chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  ): Promise<void> {
    await this.snapshots.write(this.#meta(id, membership), chunks);
    // A snapshot of the leader's may have overtaken this one while it was written.
    if (id.index <= Math.max(this.snapshotIndex, this.#queuedSnapshot)) return;
    await this.#wal.append([snapshotRecord(id)]);
    if (id.index <= this.snapshotIndex) return;
    this.memory.createSnapshot(id.index, membership.confState, NO_BYTES);
    this.#keepTrailing(id.index, membership.confState);
    await this.dropReplaced(id);
  }

  /**
   * Forgets what the newest snapshot has replaced. The entries after the previous one that was not
   * set aside stay on disk, should the newest be damaged.
   */
  async dropReplaced(newest: SnapshotId): Promise<void> {
    const kept = await this.snapshots.prune(newest);
    await this.#wal.release((kept.at(-1) ?? newest).index + 1);
  }

  /** Has the log continue in new files, and those before removed as snapshots replace them. */
  renewFiles(): Promise<void> {
    return this.#wal.renew();
  }

  /** Renames a snapshot's damaged file and reports it, unless a newer one has replaced it. */
  async setAside(id: SnapshotId, damage: AppError): Promise<void> {
    const isThere = (await this.snapshots.list()).some(({ index }) => index === id.index);
    if (!isThere && id.index !== this.snapshotIndex) return;
    this.#options.onDamaged(damage, isThere ? "setAside" : "gone");
    if (isThere) await this.snapshots.quarantine(id);
  }

  close(): Promise<void> {
    return this.#wal.close();
  }

  #meta(id: SnapshotId, membership: MembershipState): SnapshotMeta {
    return { ...id, cluster: this.#options.owner.cluster, detail: membership };
  }

  #mustSync({ term, vote }: HardState): boolean {
    const { hardState } = this.memory.initialState();
    return term !== hardState.term || vote !== hardState.vote;
  }

  async #recover(recovered: RecoveredLog): Promise<void> {
    const newest = recovered.snapshot;
    await this.snapshots.removeNewer(newest ?? { index: 0, term: 0 });
    const entries = entriesOfRecords(recovered.entries);
    const [first] = entries;
    if (first && first.index > (newest?.index ?? 0) + 1) {
      throw logGap(this.#options.directory, newest?.index ?? 0, first.index);
    }
    if (newest) {
      this.#fillMemory(await this.#restoreSnapshot(newest, entries), entries);
    } else {
      this.memory.append(entries);
    }
    const { state } = recovered;
    if (!state) return;
    // A torn last write may have kept the hard state and lost the entries, which were never acknowledged.
    const commit = Math.min(state.index, this.memory.lastIndex());
    const vote = new DataView(state.payload.buffer, state.payload.byteOffset, 8);
    this.memory.setHardState({ term: state.term, vote: vote.getFloat64(0, true), commit });
  }

  /** The newest snapshot that can be read and from which the log leads on. */
  async #restoreSnapshot(newest: SnapshotId, entries: readonly Entry[]): Promise<Snapshot> {
    const ids = await this.snapshots.list();
    const firstIndex = entries[0]?.index ?? newest.index + 1;
    const damaged: [SnapshotId, AppError][] = [];
    for (const id of ids) {
      if (id.index < newest.index && id.index + 1 < firstIndex) break;
      try {
        const meta = await this.snapshots.meta(id);
        await this.#options.restore(meta, this.snapshots.chunks(id));
        const { confState } = meta.detail as MembershipState;
        // They would pass for the snapshot before the next one, and this one be removed as too old.
        for (const [other, damage] of damaged) await this.setAside(other, damage);
        return { index: id.index, term: id.term, confState, data: NO_BYTES };
      } catch (thrown) {
        const error = toAppError(thrown);
        // It is whole: an older one would lead to the same state, or need the same key.
        if (WHOLE.has(error.code)) throw error;
        damaged.push([id, error]);
      }
    }
    // Not set aside: an earlier version of the program may be what cannot read them.
    for (const [, damage] of damaged) this.#options.onDamaged(damage, "left");
    throw new AppError(
      "server_error",
      `no usable snapshot is left in ${this.#options.directory}/snapshots; this member lost acknowledged state: empty its data directory and start it again, and it joins the group again`,
    );
  }

  /** Drops entries before the snapshot from memory, but for the last ones that other members may lag by. */
  #keepTrailing(snapshotIndex: number, confState: ConfState): void {
    const { memory } = this;
    if (isAlone(confState)) {
      memory.compact(snapshotIndex);
      return;
    }
    const { trailingEntries = TRAILING_ENTRIES, trailingBytes = TRAILING_BYTES } = this.#options;
    const oldest = Math.max(memory.firstIndex(), snapshotIndex - trailingEntries + 1);
    const kept = memory.newestWithin(oldest, snapshotIndex, trailingBytes);
    if (kept > memory.firstIndex()) memory.compact(kept - 1);
  }

  #fillMemory(snapshot: Snapshot, entries: readonly Entry[]): void {
    const [first, ...rest] = entries;
    if (!first || first.index >= snapshot.index) {
      this.memory.applySnapshot(snapshot);
      this.memory.append(entries);
      return;
    }
    // The oldest entry at hand serves as the start of the log, since nothing before it is known.
    this.memory.applySnapshot({ ...snapshot, index: first.index, term: first.term });
    this.memory.append(rest);
    this.memory.createSnapshot(snapshot.index, snapshot.confState, NO_BYTES);
    this.#keepTrailing(snapshot.index, snapshot.confState);
  }
}

function isAlone({ voters, votersOutgoing, learners }: ConfState): boolean {
  return voters.length + votersOutgoing.length + learners.length === 1;
}

function snapshotRecord({ index, term }: SnapshotId): WalRecord {
  return { kind: WAL_KINDS.snapshot, term, index, payload: NO_BYTES };
}

function stateRecord({ term, vote, commit }: HardState): WalRecord {
  const payload = new Uint8Array(8);
  new DataView(payload.buffer).setFloat64(0, vote, true);
  return { kind: WAL_KINDS.state, term, index: commit, payload };
}

function withoutData({ index, term, confState }: Snapshot): Snapshot {
  return { index, term, confState, data: NO_BYTES };
}
