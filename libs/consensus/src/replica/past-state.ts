import { AppError, toAppError } from "@heddle/base/errors";
import { readSnapshotChunks } from "@heddle/storage/snapshot-file";
import { listSnapshots, type SnapshotId, snapshotPath } from "@heddle/storage/snapshot-store";
import type { StorageFiles } from "@heddle/storage/storage-files";
import type { WalRecord } from "@heddle/storage/wal-record";
import type { WalOwner } from "@heddle/storage/wal-recovery";
import { readWal } from "@heddle/storage/write-ahead-log";
import type { StateMachine } from "../ports.ts";
import { commandOf, entriesOfRecords } from "../proposals/entry-codec.ts";

interface PastStorage {
  readonly files: StorageFiles;
  /** Holds `wal/` and `snapshots/`, which another thread may be writing. */
  readonly directory: string;
  readonly owner: WalOwner;
}

export interface PastStateOf<Machine> {
  /** Holds the state after the entry at the position. */
  readonly machine: Machine;
  /** The first position whose state the files still have. */
  readonly firstKept: number;
}

/** Files may be replaced while they are read. */
const ATTEMPTS = 4;
/** Entries applied at a time. */
const BATCH = 256;

/**
 * The state after the committed entry at that position, from the files of a member that may be
 * running: nothing is written or locked. Rejects with `gone` where the position is no longer kept,
 * with `unavailable` where the files change faster than they can be read.
 */
export async function readPastState<Machine extends StateMachine<unknown>>(
  storage: PastStorage,
  at: number,
  make: () => Machine,
): Promise<PastStateOf<Machine>> {
  let last: AppError | undefined;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    try {
      return await readOnce(storage, at, make());
    } catch (error) {
      last = toAppError(error);
      if (FINAL.has(last.code)) throw last;
    }
  }
  const message = `The files of this master change faster than they can be read: ${last?.message}.`;
  throw new AppError("unavailable", message, { cause: last, retryAfterMs: 1_000 });
}

const FINAL: ReadonlySet<string> = new Set(["gone", "insufficient_memory", "precondition_failed"]);

async function readOnce<Machine extends StateMachine<unknown>>(
  { files, directory, owner }: PastStorage,
  at: number,
  machine: Machine,
): Promise<PastStateOf<Machine>> {
  const snapshots = `${directory}/snapshots`;
  const { entries: records } = await readWal({ files, directory: `${directory}/wal`, owner });
  const kept = startsOf(await listSnapshots(files, snapshots), records);
  const firstKept = kept.at(-1)?.index ?? Number.POSITIVE_INFINITY;
  const start = kept.find(({ index }) => index <= at);
  if (!start) {
    const message = `The state at position ${at} is no longer kept on this master: the first kept is ${firstKept}. Another master may have it.`;
    throw new AppError("gone", message);
  }
  await machine.restore(readSnapshotChunks(files, snapshotPath(snapshots, start)));
  const wanted = records.filter(({ index }) => index > start.index && index <= at);
  checkWhole(wanted, start.index, at);
  for (let from = 0; from < wanted.length; from += BATCH) {
    for (const { type, index, data } of entriesOfRecords(wanted.slice(from, from + BATCH))) {
      const command = type === "EntryNormal" ? commandOf(data) : undefined;
      if (command) await machine.apply([{ index, data: command }]);
    }
  }
  return { machine, firstKept };
}

/** The snapshots from which the log leads on, newest first. */
function startsOf(snapshots: readonly SnapshotId[], records: readonly WalRecord[]): SnapshotId[] {
  const first = records[0]?.index ?? Number.POSITIVE_INFINITY;
  const [newest] = snapshots;
  return snapshots.filter(({ index }) => index === newest?.index || index + 1 >= first);
}

function checkWhole(records: readonly WalRecord[], from: number, to: number): void {
  const isWhole = records.every(({ index }, place) => index === from + 1 + place);
  if (isWhole && records.length === to - from) return;
  throw new AppError("unavailable", `the log from ${from + 1} to ${to} was read in part`);
}
