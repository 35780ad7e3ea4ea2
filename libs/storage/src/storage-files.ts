import { constants, writeSync } from "node:fs";
import { type FileHandle, mkdir, open, readdir, rename, rm } from "node:fs/promises";

/**
 * The few file operations that durable storage rests on, as a port: the node's own disk in
 * production, a simulated disk with torn writes and failing syncs where faults must be reproducible.
 */
export interface StorageFiles {
  makeDirectory(path: string): Promise<void>;
  /** Names in the directory, sorted. */
  list(directory: string): Promise<string[]>;
  /** Opens for reading and writing, creating it where it is missing, or what there is for reading. */
  open(path: string, mode: OpenMode): Promise<StorageFile>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes creations, renames and removals in the directory durable. */
  syncDirectory(directory: string): Promise<void>;
}

/** What a file is opened for; the first two write, `durable` without a cache between. */
export type OpenMode = "buffered" | "durable" | "read";

/** An open file. In `durable` mode a resolved write is on the disk (O_DSYNC). */
export interface StorageFile {
  write(buffer: Uint8Array, position: number): Promise<void>;
  /** As many bytes as there are from `position`, at most `length`. */
  read(length: number, position: number): Promise<Uint8Array>;
  size(): Promise<number>;
  truncate(size: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
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

/** A write that takes longer than this shows that the disk is slow now. */
const slowWriteMs = 20;
/** How long writes leave the thread after a slow one. */
const cautiousMs = 1_000;

/**
 * The same for a thread that does nothing but keep a log. A durable write of some 0.1 ms costs more
 * in waking a thread of the pool and being woken by it than in itself, so it is made in place; after
 * one that took long, writes go to the pool for a while, so that a disk that stalls holds up the
 * thread once and not for each write. `now` is a clock in milliseconds.
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

/** Writes in place while the disk is quick. */
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
    // What was said in this turn leaves first.
    await undefined;
    for (let done = 0; done < buffer.byteLength; ) {
      const left = buffer.byteLength - done;
      done += writeSync(this.handle.fd, buffer, done, left, position + done);
    }
    const endMs = this.#now();
    if (endMs - startMs > slowWriteMs) this.#cautiousUntilMs = endMs + cautiousMs;
  }
}
