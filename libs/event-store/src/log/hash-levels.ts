import { completeRoot } from "@heddle/kernels/tree-hash";
import type { StorageFile, StorageFiles } from "@heddle/storage/storage-files";
import { writeLeafHashes } from "../merkle/hash.ts";
import { HASH_BYTES } from "../merkle/sibling-sides.ts";
import { levelWidth, TILE_WIDTH, type Tile, tileBytes } from "../merkle/tile.ts";

const TILE_BYTES = TILE_WIDTH * HASH_BYTES;

/**
 * The hashes of a tree by level, as the tiles of C2SP tlog-tiles behind each other.
 *
 * - Those of full segments are in one file a level, written when a segment is full.
 * - Those of the last segment are in memory, as its entries give them again.
 */
export class HashLevels {
  readonly #files: StorageFiles;
  readonly #directory: string;
  readonly #width: number;
  readonly #open = new Map<number, Promise<StorageFile>>();
  /** Entries of the full segments. */
  #sealed: number;
  #recent: Buffer[];
  /** Hashes in each buffer. */
  #filled: number[];
  /** Hashes of levels above a segment; at most one each, when the segment is full. */
  #above: Uint8Array[] = [];

  constructor(files: StorageFiles, directory: string, width: number, sealed: number) {
    this.#files = files;
    this.#directory = directory;
    this.#width = width;
    this.#sealed = sealed;
    this.#recent = newBuffers(width);
    this.#filled = this.#recent.map(() => 0);
  }

  /** Whether the files have all hashes of the full segments. */
  async isComplete(): Promise<boolean> {
    for (let level = 0; levelWidth(this.#sealed, level) > 0; level++) {
      const file = await this.#file(level);
      if ((await file.size()) < levelWidth(this.#sealed, level) * HASH_BYTES) return false;
    }
    return true;
  }

  /** Takes the next entries of the segment; returns the roots of the tiles on level 0 that are then full. */
  addEntries(entries: readonly Uint8Array[]): Uint8Array[] {
    const buffer = this.#recent[0] as Buffer;
    const before = this.#filled[0] as number;
    const count = before + entries.length;
    writeLeafHashes(entries, buffer, before * HASH_BYTES);
    this.#filled[0] = count;
    const roots: Uint8Array[] = [];
    for (let tile = Math.floor(before / TILE_WIDTH); (tile + 1) * TILE_WIDTH <= count; tile++) {
      roots.push(completeRoot(buffer.subarray(tile * TILE_BYTES, (tile + 1) * TILE_BYTES)));
    }
    return roots;
  }

  /** Takes the next hash of a level above 0. */
  readonly add = (level: number, hash: Uint8Array): void => {
    const buffer = this.#recent[level];
    if (!buffer) {
      this.#above.push(hash);
      return;
    }
    const count = this.#filled[level] as number;
    buffer.set(hash, count * HASH_BYTES);
    this.#filled[level] = count + 1;
  };

  /** Writes the hashes of the last segment, which is full, and resolves when they are on the disk. */
  async seal(): Promise<void> {
    const sealed = this.#sealed + this.#width;
    let isNew = false;
    const written = [...this.#recent, ...this.#above].map(async (bytes, level) => {
      const file = await this.#file(level);
      const at = levelWidth(sealed, level) * HASH_BYTES - bytes.byteLength;
      if (at === 0) isNew = true;
      await file.write(bytes, at);
      await file.sync();
    });
    await Promise.all(written);
    if (isNew) await this.#files.syncDirectory(this.#directory);
    this.#sealed = sealed;
    this.#above = [];
    // New ones, as readers may still have parts of the old ones.
    this.#recent = newBuffers(this.#width);
    this.#filled = this.#recent.map(() => 0);
  }

  readonly readTile = async (tile: Tile): Promise<Uint8Array> => {
    const first = tile.index * TILE_WIDTH - levelWidth(this.#sealed, tile.level);
    const recent = this.#recent[tile.level];
    if (first >= 0 && recent) {
      const known = Math.min(first + tile.width, this.#filled[tile.level] as number);
      return recent.subarray(first * HASH_BYTES, Math.max(first, known) * HASH_BYTES);
    }
    const file = await this.#file(tile.level);
    return file.read(tileBytes(tile), tile.index * TILE_WIDTH * HASH_BYTES);
  };

  async close(): Promise<void> {
    const files = await Promise.all(this.#open.values());
    await Promise.all(files.map((file) => file.close()));
  }

  #file(level: number): Promise<StorageFile> {
    let file = this.#open.get(level);
    if (!file) {
      file = this.#files.open(levelPath(this.#directory, level), "buffered");
      this.#open.set(level, file);
      file.catch(() => this.#open.delete(level));
    }
    return file;
  }
}

export function levelPath(directory: string, level: number): string {
  return `${directory}/level-${level}.hashes`;
}

/** One for each level below the root of a segment. */
function newBuffers(width: number): Buffer[] {
  const buffers: Buffer[] = [];
  for (let count = width; count > 1; count /= TILE_WIDTH)
    buffers.push(Buffer.alloc(count * HASH_BYTES));
  return buffers;
}
