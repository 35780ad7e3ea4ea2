import fs from "node:fs";
import { here } from "../simulated-process.ts";

/**
 * `node:fs/promises` on the real disk, without its thread pool: an operation happens at once, and is
 * answered after a latency that the seed draws.
 */

type Sync = (...args: never[]) => unknown;

function answered<T extends Sync>(sync: T) {
  return async (...args: Parameters<T>): Promise<ReturnType<T>> => {
    await here()?.fileLatency();
    return sync(...args) as ReturnType<T>;
  };
}

function reading<T extends Sync>(sync: T) {
  return async (...args: Parameters<T>): Promise<ReturnType<T>> => {
    await here()?.readLatency();
    return sync(...args) as ReturnType<T>;
  };
}

function writing<T extends Sync>(sync: T) {
  const write = answered(sync);
  return async (...args: Parameters<T>): Promise<ReturnType<T>> => {
    here()?.takeRoom();
    return write(...args);
  };
}

export const constants = fs.constants;
export const access = reading(fs.accessSync);
export const appendFile = writing(fs.appendFileSync);
export const chmod = answered(fs.chmodSync);
export const chown = answered(fs.chownSync);
export const copyFile = writing(fs.copyFileSync);
export const cp = answered(fs.cpSync);
export const lchown = answered(fs.lchownSync);
export const link = answered(fs.linkSync);
export const lstat = reading(fs.lstatSync);
export const lutimes = answered(fs.lutimesSync);
export const mkdir = writing(fs.mkdirSync as Sync) as typeof fs.promises.mkdir;
export const mkdtemp = answered(fs.mkdtempSync);
export const readdir = reading(fs.readdirSync as Sync) as typeof fs.promises.readdir;
export const readFile = reading(fs.readFileSync as Sync) as typeof fs.promises.readFile;
export const readlink = reading(fs.readlinkSync);
export const realpath = reading(fs.realpathSync as Sync) as typeof fs.promises.realpath;
export const rename = answered(fs.renameSync);
export const rm = answered(fs.rmSync);
export const rmdir = answered(fs.rmdirSync);
export const stat = reading(fs.statSync as Sync) as typeof fs.promises.stat;
export const symlink = answered(fs.symlinkSync);
export const truncate = answered(fs.truncateSync);
export const unlink = answered(fs.unlinkSync);
export const utimes = answered(fs.utimesSync);
export const writeFile = writing(fs.writeFileSync);

const FREE_BLOCKS = 2 ** 26;

/** A disk with room, whatever the real one has. */
export async function statfs() {
  await here()?.readLatency();
  return { bsize: 4_096, blocks: FREE_BLOCKS, bfree: FREE_BLOCKS, bavail: FREE_BLOCKS };
}

export async function opendir(path: string) {
  const entries = await (readdir as (path: string, options: object) => Promise<fs.Dirent[]>)(path, {
    withFileTypes: true,
  });
  return {
    close: () => Promise.resolve(),
    async *[Symbol.asyncIterator]() {
      yield* entries;
    },
  };
}

export async function open(
  path: string,
  flags: string | number = "r",
  mode?: number,
): Promise<FileHandle> {
  await here()?.fileLatency();
  return new FileHandle(fs.openSync(path, flags, mode));
}

export class FileHandle {
  readonly fd: number;
  readonly #files = here()?.files;
  #isClosed = false;

  constructor(fd: number) {
    this.fd = fd;
    this.#files?.add(fd);
  }

  async read(
    buffer:
      | Uint8Array
      | { buffer: Uint8Array; offset?: number; length?: number; position?: number },
    offset?: number,
    length?: number,
    position?: number | null,
  ) {
    await here()?.readLatency();
    const asked = buffer instanceof Uint8Array ? { buffer, offset, length, position } : buffer;
    const { buffer: into, offset: at = 0 } = asked;
    const count = asked.length ?? into.byteLength - at;
    const bytesRead = fs.readSync(this.#open, into, at, count, asked.position ?? null);
    return { bytesRead, buffer: into };
  }

  async write(data: Uint8Array | string, offset?: number, length?: number, position?: number) {
    here()?.takeRoom();
    await here()?.fileLatency();
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    const at = offset ?? 0;
    const count = length ?? bytes.byteLength - at;
    return { bytesWritten: fs.writeSync(this.#open, bytes, at, count, position), buffer: data };
  }

  async writev(buffers: readonly Uint8Array[], position?: number) {
    here()?.takeRoom();
    await here()?.fileLatency();
    return { bytesWritten: fs.writevSync(this.#open, buffers, position), buffers };
  }

  async readFile(options?: { readonly encoding?: BufferEncoding } | BufferEncoding) {
    await here()?.readLatency();
    return fs.readFileSync(this.#open, options as BufferEncoding);
  }

  async writeFile(data: string | Uint8Array, options?: BufferEncoding) {
    here()?.takeRoom();
    await here()?.fileLatency();
    fs.writeFileSync(this.#open, data, options);
  }

  appendFile(data: string | Uint8Array) {
    return this.write(data);
  }

  async stat(options?: { readonly bigint?: boolean }) {
    await here()?.readLatency();
    return fs.fstatSync(this.#open, options as object);
  }

  async truncate(length?: number) {
    await here()?.fileLatency();
    fs.ftruncateSync(this.#open, length);
  }

  async chmod(mode: number) {
    fs.fchmodSync(this.#open, mode);
  }

  async chown(uid: number, gid: number) {
    fs.fchownSync(this.#open, uid, gid);
  }

  async utimes(atime: number | Date, mtime: number | Date) {
    fs.futimesSync(this.#open, atime, mtime);
  }

  async sync() {
    await here()?.fileLatency();
  }

  async datasync() {
    await here()?.fileLatency();
  }

  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#files?.delete(this.fd);
    fs.closeSync(this.fd);
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }

  get #open(): number {
    if (!this.#isClosed) return this.fd;
    throw Object.assign(new Error("file closed"), { code: "EBADF" });
  }
}
