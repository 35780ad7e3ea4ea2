import { type AppError, toAppError } from "@heddle/base/errors";
import {
  readSnapshotChunks,
  readSnapshotMeta,
  type SnapshotId,
  type SnapshotMeta,
  writeSnapshotFile,
} from "./snapshot-file.ts";
import type { StorageFiles } from "./storage-files.ts";

export type { SnapshotId, SnapshotMeta };

/** The newest, and its predecessor in case the newest is damaged. */
const KEPT = 2;

/** The suffix of a damaged file; only the latest such file is kept. */
const DAMAGED_SUFFIX = ".damaged";

/**
 * Snapshots on disk, each a file (snapshot-file.ts) that gets its name only when it is complete and
 * synced. Two are kept.
 */
export class SnapshotStore {
  readonly #files: StorageFiles;
  readonly #directory: string;
  #nextTemporary = 0;

  private constructor(files: StorageFiles, directory: string) {
    this.#files = files;
    this.#directory = directory;
  }

  /** Opens the directory, created if missing, and removes an unfinished write. */
  static async open(files: StorageFiles, directory: string): Promise<SnapshotStore> {
    await files.makeDirectory(directory);
    for (const name of await files.list(directory)) {
      if (name.endsWith(".tmp")) await files.remove(`${directory}/${name}`);
    }
    return new SnapshotStore(files, directory);
  }

  /** All snapshots, newest first; a listed one may still prove to be damaged. */
  list(): Promise<SnapshotId[]> {
    return listSnapshots(this.#files, this.#directory);
  }

  /** Resolves when the snapshot is on the disk under its name. */
  async write(
    meta: SnapshotMeta,
    chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  ): Promise<void> {
    const temporary = `${this.#directory}/incoming-${this.#nextTemporary++}.tmp`;
    await writeSnapshotFile(this.#files, temporary, meta, chunks);
    await this.#files.rename(temporary, this.#path(meta));
    await this.#files.syncDirectory(this.#directory);
  }

  /** Throws `server_error` if the file's head is damaged. */
  meta(id: SnapshotId): Promise<SnapshotMeta> {
    return readSnapshotMeta(this.#files, this.#path(id));
  }

  /** The data in the chunks of the writer; throws `server_error` at the first damage. */
  chunks(id: SnapshotId): AsyncGenerator<Uint8Array, void, undefined> {
    return readSnapshotChunks(this.#files, this.#path(id));
  }

  /**
   * Reads all of it; resolves with the damage as `server_error`, or with undefined if it is intact.
   */
  async damage(id: SnapshotId): Promise<AppError | undefined> {
    try {
      await this.meta(id);
      for await (const _ of this.chunks(id));
      return undefined;
    } catch (error) {
      return toAppError(error);
    }
  }

  /** Renames a damaged snapshot's file, so that it is not used and can be inspected. */
  async quarantine(id: SnapshotId): Promise<void> {
    for (const name of await this.#files.list(this.#directory)) {
      if (name.endsWith(DAMAGED_SUFFIX)) await this.#files.remove(`${this.#directory}/${name}`);
    }
    await this.#files.rename(this.#path(id), `${this.#path(id)}${DAMAGED_SUFFIX}`);
    await this.#files.syncDirectory(this.#directory);
  }

  /** Removes all but the newest two up to the given one; resolves with those two. */
  async prune(newest: SnapshotId): Promise<SnapshotId[]> {
    const ids = (await this.list()).filter(({ index }) => index <= newest.index);
    await this.#remove(ids.slice(KEPT));
    return ids.slice(0, KEPT);
  }

  /** Removes snapshots that were written and never put in use. */
  async removeNewer(newest: SnapshotId): Promise<void> {
    const ids = await this.list();
    await this.#remove(ids.filter(({ index }) => index > newest.index));
  }

  async #remove(ids: readonly SnapshotId[]): Promise<void> {
    for (const id of ids) await this.#files.remove(this.#path(id));
    if (ids.length > 0) await this.#files.syncDirectory(this.#directory);
  }

  #path(id: SnapshotId): string {
    return snapshotPath(this.#directory, id);
  }
}

/** The snapshots of a directory, newest first; a listed one may still prove to be damaged. */
export async function listSnapshots(files: StorageFiles, directory: string): Promise<SnapshotId[]> {
  const ids: SnapshotId[] = [];
  for (const name of await files.list(directory)) {
    const match = /^snapshot-(\d{16})-(\d{10})\.snap$/.exec(name);
    if (match) ids.push({ index: Number(match[1]), term: Number(match[2]) });
  }
  return ids.sort((a, b) => b.index - a.index || b.term - a.term);
}

/** The path of the snapshot in a store on the directory. */
export function snapshotPath(directory: string, { index, term }: SnapshotId): string {
  const name = `snapshot-${String(index).padStart(16, "0")}-${String(term).padStart(10, "0")}`;
  return `${directory}/${name}.snap`;
}
