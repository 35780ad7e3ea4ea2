import { constants } from "node:fs";
import { type FileHandle, mkdir, open, readdir, rename, rm } from "node:fs/promises";

/**
 * The few file operations that durable storage rests on, as a port: the node's own disk in
 * production, a simulated disk with torn writes and failing syncs where faults must be reproducible.
 */
export interface StorageFiles {
  makeDirectory(path: string): Promise<void>;
  /** Names in the directory, sorted. */
  list(directory: string): Promise<string[]>;
  /** Opens for reading and writing, creating it where it is missing. */
  open(path: string, mode: "buffered" | "durable"): Promise<StorageFile>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes creations, renames and removals in the directory durable. */
  syncDirectory(directory: string): Promise<void>;
}

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

/** The machine's own file system. */
export const nodeStorageFiles: StorageFiles = {
  async makeDirectory(path) {
    await mkdir(path, { recursive: true, mode: 0o700 });
  },
  async list(directory) {
    return (await readdir(directory)).sort();
  },
  async open(path, mode) {
    const flags = constants.O_RDWR | constants.O_CREAT;
    return new NodeStorageFile(
      await open(path, mode === "durable" ? flags | constants.O_DSYNC : flags, 0o600),
    );
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

class NodeStorageFile implements StorageFile {
  readonly #handle: FileHandle;

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  async write(buffer: Uint8Array, position: number): Promise<void> {
    let done = 0;
    while (done < buffer.byteLength) {
      const { bytesWritten } = await this.#handle.write(
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
      const { bytesRead } = await this.#handle.read(buffer, done, length - done, position + done);
      if (bytesRead === 0) break;
      done += bytesRead;
    }
    return done === length ? buffer : buffer.subarray(0, done);
  }

  async size(): Promise<number> {
    return (await this.#handle.stat()).size;
  }

  async truncate(size: number): Promise<void> {
    await this.#handle.truncate(size);
  }

  async sync(): Promise<void> {
    await this.#handle.sync();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }
}
