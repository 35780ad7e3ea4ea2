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

/** Zeros are written in pieces of this size. */
const PIECE_BYTES = 2 ** 20;

/**
 * The files of a write-ahead log. A segment that is not needed any more becomes the spare, and the
 * spare becomes the next segment: it has all its blocks already, so that a log in use writes its
 * bytes once, and not zeros first. Only without a spare is a file filled with zeros.
 */
export class WalSegments {
  readonly #options: WalSegmentsOptions;
  readonly #nextPath: string;
  readonly #sparePath: string;

  constructor(options: WalSegmentsOptions) {
    this.#options = options;
    this.#nextPath = `${options.directory}/wal-next.tmp`;
    this.#sparePath = `${options.directory}/wal-spare.tmp`;
  }

  path(sequence: number): string {
    return `${this.#options.directory}/wal-${String(sequence).padStart(16, "0")}.log`;
  }

  /** Makes the file of the next segment ready: appends into it change no metadata of it. */
  async prepare(): Promise<PreparedSegment> {
    const { files } = this.#options;
    const isReused = await this.#takeSpare();
    if (!isReused) await this.#fill();
    return { file: await files.open(this.#nextPath, "durable"), isReused };
  }

  /** Gives the prepared file its name; it is a segment when this has resolved. */
  async begin(sequence: number): Promise<void> {
    await this.#options.files.rename(this.#nextPath, this.path(sequence));
    await this.syncNames();
  }

  /** Takes a segment out of the log; it becomes the spare. Takes effect with `syncNames`. */
  async retire(sequence: number): Promise<void> {
    await this.#options.files.rename(this.path(sequence), this.#sparePath);
  }

  async removeSpare(): Promise<void> {
    await this.#options.files.remove(this.#sparePath);
  }

  /** Makes all changes of names durable. */
  syncNames(): Promise<void> {
    return this.#options.files.syncDirectory(this.#options.directory);
  }

  /** Has the spare be the next segment, if there is one of the right size. */
  async #takeSpare(): Promise<boolean> {
    const { files, directory, segmentBytes } = this.#options;
    if (!(await files.list(directory)).includes("wal-spare.tmp")) return false;
    const file = await files.open(this.#sparePath, "buffered");
    const size = await file.size();
    await file.close();
    if (size !== segmentBytes) {
      await this.removeSpare();
      return false;
    }
    await files.rename(this.#sparePath, this.#nextPath);
    return true;
  }

  async #fill(): Promise<void> {
    const { files, segmentBytes } = this.#options;
    const file = await files.open(this.#nextPath, "buffered");
    await file.truncate(0);
    const zeros = new Uint8Array(Math.min(segmentBytes, PIECE_BYTES));
    for (let at = 0; at < segmentBytes; at += zeros.byteLength) {
      await file.write(zeros.subarray(0, Math.min(zeros.byteLength, segmentBytes - at)), at);
    }
    await file.sync();
    await file.close();
  }
}
