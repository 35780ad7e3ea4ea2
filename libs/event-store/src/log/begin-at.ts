import { AppError } from "@heddle/base/errors";
import { completeRoot } from "@heddle/kernels/tree-hash";
import type { StorageFile, StorageFiles } from "@heddle/storage/storage-files";
import { HASH_BYTES } from "../merkle/sibling-sides.ts";
import { TILE_WIDTH } from "../merkle/tile.ts";
import { levelPath } from "./hash-levels.ts";
import { type LogPlace, startSegment } from "./log-recovery.ts";

/** The hashes of entries from that one on, which is a multiple of 256: at least 256 of them. */
export type ReadLeaves = (first: number) => Promise<Uint8Array>;

/**
 * Replaces what the directory has by a log whose entries before `first` are removed already; a
 * reader gives their hashes. The next checkpoint shows whether they are the right ones.
 */
export async function beginLogAt(
  place: LogPlace,
  first: number,
  readLeaves: ReadLeaves,
): Promise<void> {
  const { files, directory, shape } = place;
  if (first % shape.width !== 0) {
    const message = `a log begins at a multiple of ${shape.width} entries, not at ${first}`;
    throw new AppError("conflict", message);
  }
  await files.makeDirectory(directory);
  // Removed in the order of names: after each removal the rest is still a valid log.
  const names = await files.list(directory);
  for (const name of names) await files.remove(`${directory}/${name}`);
  await files.syncDirectory(directory);
  const levels = new LevelFiles(files, directory);
  try {
    for (let at = 0; at < first; ) {
      const hashes = await readLeaves(at);
      const whole = Math.min(hashes.byteLength, (first - at) * HASH_BYTES);
      if (whole === 0 || whole % (TILE_WIDTH * HASH_BYTES) !== 0) {
        throw new AppError("unavailable", `no whole tile of hashes from ${at} on was answered`);
      }
      await levels.add(0, hashes.subarray(0, whole));
      at += whole / HASH_BYTES;
    }
    await levels.sync();
  } finally {
    await levels.close();
  }
  const { file } = await startSegment(place, first, { crc: 0, group: 0 });
  await file.close();
}

/** The tiles of all levels, from those of level 0. */
class LevelFiles {
  readonly #files: StorageFiles;
  readonly #directory: string;
  readonly #levels: { readonly file: StorageFile; bytes: number; tile: Buffer }[] = [];

  constructor(files: StorageFiles, directory: string) {
    this.#files = files;
    this.#directory = directory;
  }

  /** Writes hashes behind those of the level; a full tile is a hash of the next one. */
  async add(level: number, hashes: Uint8Array): Promise<void> {
    const known = this.#levels[level] ?? (await this.#open(level));
    await known.file.write(hashes, known.bytes);
    known.bytes += hashes.byteLength;
    const tileBytes = TILE_WIDTH * HASH_BYTES;
    const pending = Buffer.concat([known.tile, hashes]);
    const roots: Uint8Array[] = [];
    let at = 0;
    for (; at + tileBytes <= pending.byteLength; at += tileBytes) {
      roots.push(completeRoot(pending.subarray(at, at + tileBytes)));
    }
    known.tile = pending.subarray(at);
    if (roots.length > 0) await this.add(level + 1, Buffer.concat(roots));
  }

  async sync(): Promise<void> {
    for (const { file } of this.#levels) await file.sync();
    await this.#files.syncDirectory(this.#directory);
  }

  async close(): Promise<void> {
    for (const { file } of this.#levels) await file.close();
  }

  async #open(level: number) {
    const file = await this.#files.open(levelPath(this.#directory, level), "buffered");
    const opened = { file, bytes: 0, tile: Buffer.alloc(0) };
    this.#levels.push(opened);
    return opened;
  }
}
