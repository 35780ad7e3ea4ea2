import { open } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { listSnapshots, snapshotPath } from "@heddle/storage/snapshot-store";
import { closedOnFailure, nodeStorageFiles } from "@heddle/storage/storage-files";
import type { Backup } from "../control-group.ts";

/** What a backup needs of the replica. */
interface SnapshotSource {
  takeSnapshot(): Promise<void>;
  status(): { readonly applied: number; readonly snapshotIndex: number };
}

/** A snapshot under way may be older than the call, and a newer one may prune that which was found. */
const ATTEMPTS = 5;
const READ_BYTES = 256 * 1024;

/** A snapshot of at least the state as of this call; an open one survives its removal. */
export async function takeBackup(replica: SnapshotSource, directory: string): Promise<Backup> {
  const wanted = replica.status().applied;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    await replica.takeSnapshot();
    if (replica.status().snapshotIndex < wanted) continue;
    const found = await openNewest(join(directory, "snapshots"), wanted);
    if (found) return found;
  }
  throw new AppError("overloaded", "The state changes faster than a backup can be taken.");
}

async function openNewest(snapshots: string, wanted: number): Promise<Backup | undefined> {
  const [newest] = await listSnapshots(nodeStorageFiles, snapshots);
  if (!newest || newest.index < wanted) return undefined;
  try {
    const file = await open(snapshotPath(snapshots, newest), "r");
    const { size } = await closedOnFailure(file, () => file.stat());
    const content = file.createReadStream({ highWaterMark: READ_BYTES });
    return { ...newest, bytes: size, content };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
