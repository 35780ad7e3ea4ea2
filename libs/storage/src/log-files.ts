import {
  closeSync,
  fdatasync,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  readFileSync,
  readSync,
  statSync,
  writeSync,
} from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { promisify } from "node:util";
import { openFileBeneath, openFileBeneathSync } from "@heddle/base/beneath";

/** What a task's log needs of an open file, as of Node's FileHandle. */
export interface TaskLogFile {
  readonly fd: number;
  read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesRead: number }>;
  write(buffer: Buffer, offset: number, length: number, position: number): Promise<unknown>;
  stat(): Promise<{ readonly size: number }>;
  readFile(): Promise<Buffer>;
  appendFile(bytes: Buffer): Promise<void>;
  truncate(size: number): Promise<void>;
  datasync(): Promise<void>;
  close(): Promise<void>;
}

/** The file operations of task logs. */
export interface TaskLogFiles {
  /** See openFileBeneath. */
  open(root: string, path: string, flags: number): Promise<TaskLogFile>;
  /** Also its parents. */
  makeFolder(path: string): Promise<void>;
  exists(path: string): Promise<boolean>;
}

/** In Node's thread pool: the calling thread never waits for the disk. */
export const pooledLogFiles: TaskLogFiles = {
  open: openFileBeneath,
  async makeFolder(path) {
    await mkdir(path, { recursive: true, mode: 0o700 });
  },
  exists: (path) =>
    stat(path).then(
      () => true,
      () => false,
    ),
};

/** A longer sync indicates that the disk is slow now. */
const SLOW_SYNC_MS = 20;
/** How long syncs use the pool after a slow one. */
const POOL_AFTER_SLOW_SYNC_MS = 1_000;
const datasyncInPool = promisify(fdatasync);

/**
 * For a thread that only keeps logs. Each operation is made in place, as most take less time than
 * the way to the pool and back. Syncs of a slow disk use the pool, where several run at a time.
 */
export function blockingLogFiles(now: () => number): TaskLogFiles {
  let pooledUntilMs = Number.NEGATIVE_INFINITY;
  const datasync = async (fd: number) => {
    const startMs = now();
    if (startMs < pooledUntilMs) return datasyncInPool(fd);
    fdatasyncSync(fd);
    const endMs = now();
    if (endMs - startMs > SLOW_SYNC_MS) pooledUntilMs = endMs + POOL_AFTER_SLOW_SYNC_MS;
  };
  return {
    open: async (root, path, flags) =>
      new BlockingLogFile(openFileBeneathSync(root, path, flags), datasync),
    async makeFolder(path) {
      mkdirSync(path, { recursive: true, mode: 0o700 });
    },
    exists: async (path) => statSync(path, { throwIfNoEntry: false }) !== undefined,
  };
}

class BlockingLogFile implements TaskLogFile {
  readonly fd: number;
  readonly #datasync: (fd: number) => Promise<void>;

  constructor(fd: number, datasync: (fd: number) => Promise<void>) {
    this.fd = fd;
    this.#datasync = datasync;
  }

  async read(buffer: Buffer, offset: number, length: number, position: number) {
    return { bytesRead: readSync(this.fd, buffer, offset, length, position) };
  }

  async write(buffer: Buffer, offset: number, length: number, position: number): Promise<void> {
    for (let done = 0; done < length; ) {
      done += writeSync(this.fd, buffer, offset + done, length - done, position + done);
    }
  }

  async stat() {
    return fstatSync(this.fd);
  }

  async readFile(): Promise<Buffer> {
    return readFileSync(this.fd);
  }

  async appendFile(bytes: Buffer): Promise<void> {
    for (let done = 0; done < bytes.byteLength; ) done += writeSync(this.fd, bytes, done);
  }

  async truncate(size: number): Promise<void> {
    ftruncateSync(this.fd, size);
  }

  datasync(): Promise<void> {
    return this.#datasync(this.fd);
  }

  async close(): Promise<void> {
    closeSync(this.fd);
  }
}
