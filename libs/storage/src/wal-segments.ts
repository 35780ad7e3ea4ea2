import type { StorageFile, StorageFiles } from "./storage-files.ts";

/** A file that can become the next segment. */
export interface PreparedSegment {
  /** Open in durable mode, and as long as a segment. */
  readonly file: StorageFile;
  /** True if it was a segment before, whose bytes it still holds. */
  readonly isReused: boolean;
}

interface WalSegmentsOptions {
  readonly files: StorageFiles;
  readonly directory: string;
  readonly segmentBytes: number;
}

/** Further spares are removed; releases may come in bursts, at snapshots. */
const MAX_SPARES = 2;
/** Zeros are written in pieces of this size. */
const PIECE_BYTES = 2 ** 20;

/**
 * The files of a write-ahead log. A released segment becomes a spare, and a spare becomes the next
 * segment: its blocks are allocated, so no zeros are written first. Only without a spare is a file
 * filled with zeros.
 */
export class WalSegments {
  readonly #options: WalSegmentsOptions;
  readonly #nextPath: string;

  constructor(options: WalSegmentsOptions) {
    this.#options = options;
    this.#nextPath = `${options.directory}/wal-next.tmp`;
  }

  path(sequence: number): string {
    return `${this.#options.directory}/wal-${String(sequence).padStart(16, "0")}.log`;
  }

  /** Prepares the file of the next segment: appends into it change none of its metadata. */
  async prepare(): Promise<PreparedSegment> {
    const { files } = this.#options;
    const isReused = await this.#takeSpare();
    if (!isReused) await this.#fill();
    return { file: await files.open(this.#nextPath, "durable"), isReused };
  }

  /** Names the prepared file; it is a segment once this has resolved. */
  async begin(sequence: number): Promise<void> {
    await this.#options.files.rename(this.#nextPath, this.path(sequence));
    await this.syncNames();
  }

  /**
   * Takes a segment out of the log; a usable one becomes a spare. Takes effect with `syncNames`.
   */
  async retire(sequence: number, isUsable: boolean): Promise<void> {
    const { files, directory } = this.#options;
    const path = this.path(sequence);
    if (!isUsable || (await this.#spares()).length >= MAX_SPARES) await files.remove(path);
    else await files.rename(path, `${directory}/wal-spare-${sequence}.tmp`);
  }

  async removeSpares(): Promise<void> {
    for (const path of await this.#spares()) await this.#options.files.remove(path);
  }

  /** Makes all changes of names durable. */
  syncNames(): Promise<void> {
    return this.#options.files.syncDirectory(this.#options.directory);
  }

  async #spares(): Promise<string[]> {
    const { files, directory } = this.#options;
    const names = await files.list(directory);
    return names
      .filter((name) => name.startsWith("wal-spare-"))
      .map((name) => `${directory}/${name}`);
  }

  /** Makes a spare the next segment, if there is one; spares of another size are removed. */
  async #takeSpare(): Promise<boolean> {
    const { files, segmentBytes } = this.#options;
    for (const path of await this.#spares()) {
      const file = await files.open(path, "buffered");
      const size = await file.size().finally(() => file.close());
      if (size === segmentBytes) {
        await files.rename(path, this.#nextPath);
        return true;
      }
      await files.remove(path);
    }
    return false;
  }

  async #fill(): Promise<void> {
    const { files, segmentBytes } = this.#options;
    const file = await files.open(this.#nextPath, "buffered");
    try {
      await file.truncate(0);
      const zeros = new Uint8Array(Math.min(segmentBytes, PIECE_BYTES));
      for (let at = 0; at < segmentBytes; at += zeros.byteLength) {
        await file.write(zeros.subarray(0, Math.min(zeros.byteLength, segmentBytes - at)), at);
      }
      await file.sync();
    } finally {
      await file.close();
    }
  }
}
