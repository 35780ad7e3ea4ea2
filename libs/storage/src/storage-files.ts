import { constants, writeSync } from "node:fs";
import { type FileHandle, mkdir, open, readdir, rename, rm } from "node:fs/promises";

/**
 * The file operations of durable storage, as a port. Production uses the node's own disk; tests use
 * a simulated disk with torn writes and failing syncs.
 */
export interface StorageFiles {
  makeDirectory(path: string): Promise<void>;
  /** Names in the directory, sorted. */
  list(directory: string): Promise<string[]>;
  /** Opens for reading and writing, creating a missing file, or an existing one for reading. */
  open(path: string, mode: OpenMode): Promise<StorageFile>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes creations, renames and removals in the directory durable. */
  syncDirectory(directory: string): Promise<void>;
}

/** The mode of an open file; the first two write, `durable` without a cache between. */
export type OpenMode = "buffered" | "durable" | "read";

/** An open file. In `durable` mode a resolved write is on the disk (O_DSYNC). */
export interface StorageFile {
  write(buffer: Uint8Array, position: number): Promise<void>;
  /** The bytes from `position` up to the end of the file, at most `length`. */
  read(length: number, position: number): Promise<Uint8Array>;
  size(): Promise<number>;
  truncate(size: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** The result of the work; closes the file if it fails. */
export async function closedOnFailure<Result>(
  file: Pick<StorageFile, "close">,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    await file.close();
    throw error;
  }
}

const OPEN_FLAGS: Readonly<Record<OpenMode, number>> = {
  buffered: constants.O_RDWR | constants.O_CREAT,
  durable: constants.O_RDWR | constants.O_CREAT | constants.O_DSYNC,
  read: constants.O_RDONLY,
};

/** The machine's own file system. */
export const nodeStorageFiles: StorageFiles = {
  async makeDirectory(path) {
    await mkdir(path, { recursive: true, mode: 0o700 });
  },
  async list(directory) {
    return (await readdir(directory)).sort();
  },
  async open(path, mode) {
    return new NodeStorageFile(await open(path, OPEN_FLAGS[mode], 0o600));
  },
  async rename(from, to) {
    await rename(from, to);
  },
  async remove(path) {
    await rm(path, { force: true });
  },
  async syncDirectory(directory) {
    const handle = await open(directory, constants.O_RDONLY);
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
};

/** A longer write indicates that the disk is slow now. */
const SLOW_WRITE_MS = 20;
/** How long writes use the pool after a slow one. */
const POOL_AFTER_SLOW_WRITE_MS = 1_000;

/**
 * Files for a thread that only keeps a log. `now` is a clock in milliseconds.
 *
 * - A durable write takes about 0.1 ms, less than two thread switches to and from the pool. So it
 *   is made in place.
 * - After a slow write, writes use the pool for a while. A stalled disk then blocks the thread
 *   once, not for each write.
 */
export function dedicatedStorageFiles(now: () => number): StorageFiles {
  return {
    ...nodeStorageFiles,
    open: async (path, mode) => {
      if (mode !== "durable") return nodeStorageFiles.open(path, mode);
      return new InPlaceStorageFile(await open(path, OPEN_FLAGS.durable, 0o600), now);
    },
  };
}

class NodeStorageFile implements StorageFile {
  protected readonly handle: FileHandle;

  constructor(handle: FileHandle) {
    this.handle = handle;
  }

  async write(buffer: Uint8Array, position: number): Promise<void> {
    let done = 0;
    while (done < buffer.byteLength) {
      const { bytesWritten } = await this.handle.write(
        buffer,
        done,
        buffer.byteLength - done,
        position + done,
      );
      done += bytesWritten;
    }
  }

  async read(length: number, position: number): Promise<Uint8Array> {
    const buffer = new Uint8Array(length);
    let done = 0;
    while (done < length) {
      const { bytesRead } = await this.handle.read(buffer, done, length - done, position + done);
      if (bytesRead === 0) break;
      done += bytesRead;
    }
    return done === length ? buffer : buffer.subarray(0, done);
  }

  async size(): Promise<number> {
    return (await this.handle.stat()).size;
  }

  async truncate(size: number): Promise<void> {
    await this.handle.truncate(size);
  }

  async sync(): Promise<void> {
    await this.handle.sync();
  }

  async close(): Promise<void> {
    await this.handle.close();
  }
}

/** Writes in place while the disk is fast. */
class InPlaceStorageFile extends NodeStorageFile {
  readonly #now: () => number;
  #cautiousUntilMs = 0;

  constructor(handle: FileHandle, now: () => number) {
    super(handle);
    this.#now = now;
  }

  override async write(buffer: Uint8Array, position: number): Promise<void> {
    const startMs = this.#now();
    if (startMs < this.#cautiousUntilMs) return super.write(buffer, position);
    // Messages of this turn leave first.
    await undefined;
    for (let done = 0; done < buffer.byteLength; ) {
      const left = buffer.byteLength - done;
      done += writeSync(this.handle.fd, buffer, done, left, position + done);
    }
    const endMs = this.#now();
    if (endMs - startMs > SLOW_WRITE_MS) this.#cautiousUntilMs = endMs + POOL_AFTER_SLOW_WRITE_MS;
  }
}
