import { readdir, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { AppError, toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { pooledLogFiles, type TaskLogFiles } from "@heddle/storage/log-files";
import { type LogPiece, TaskLog, taskLogExists } from "@heddle/storage/task-log";
import { type LogName, logFileName, parseFileName } from "./log-name.ts";

/** Open logs; of those without a user, the least recently used is closed first. */
const MAX_OPEN = 256;
const DEFAULT_SYNC_PAUSE_MS = 50;
/** Logs that are synced at a time: a slow disk writes several at once. */
const MAX_SYNCS = 4;
const SWEEP_MS = 60_000;

export interface LogStoreOptions {
  readonly directory: string;
  /** Above these the oldest jobs' logs are removed. */
  readonly maxBytes: number;
  readonly maxAgeMs: number;
  /** Pause between two syncs, so that pieces become durable in groups. */
  readonly syncPauseMs?: number | undefined;
  /** How files are used; by default without blocking the thread. */
  readonly files?: TaskLogFiles | undefined;
  readonly log: Log;
}

/** What one master has of a log. */
export interface LogState {
  readonly end: number;
  readonly first: number;
  readonly complete: boolean;
}

/** The state after a piece. */
export interface AppendedLog extends LogState {
  /** Whether the piece brought anything new. */
  readonly grew: boolean;
}

interface Held {
  readonly log: TaskLog;
  /** Operations on one log run in order. */
  tail: Promise<unknown>;
}

type Waiting = Pick<PromiseWithResolvers<void>, "resolve" | "reject">;

/** The logs of all tasks on this master's disk: a folder per job, two files per stream. */
export class LogStore {
  readonly #options: LogStoreOptions;
  readonly #files: TaskLogFiles;
  readonly #held = new Map<string, Promise<Held>>();
  /** Logs with pieces that are not on disk yet, and the callers that wait for that. */
  readonly #dirty = new Map<string, Waiting[]>();
  /** Logs in use, by path. */
  readonly #users = new Map<string, number>();
  /** Open logs that are not in use and wholly on disk, the least recently used first. */
  readonly #idle = new Set<string>();
  readonly #listeners = new Set<(name: LogName) => void>();
  readonly #sweepTimer: NodeJS.Timeout;
  readonly #syncPauseMs: number;
  #syncTimer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: LogStoreOptions) {
    this.#options = options;
    this.#files = options.files ?? pooledLogFiles;
    this.#syncPauseMs = options.syncPauseMs ?? DEFAULT_SYNC_PAUSE_MS;
    this.#sweepTimer = setInterval(() => void this.sweep(Date.now()), SWEEP_MS);
    this.#sweepTimer.unref();
  }

  /** Called after a log has grown; returns the function that unsubscribes. */
  onGrown(listener: (name: LogName) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Appends a piece; resolves with the durable state once it includes the piece. */
  async append(name: LogName, piece: LogPiece & { readonly first: number }): Promise<AppendedLog> {
    const isProbe = piece.data.byteLength === 0 && !piece.complete && piece.first === 0;
    // A probe creates no log.
    if (isProbe) return { ...(await this.state(name)), grew: false };
    const grew = await this.#use(name, true, async (log) => {
      const before = log.end;
      await log.append(piece);
      return log.end > before || log.complete;
    });
    await this.#synced(name);
    if (grew) for (const listener of this.#listeners) listener(name);
    return { ...(await this.state(name)), grew };
  }

  async state(name: LogName): Promise<LogState> {
    const none = { end: 0, first: 0, complete: false };
    const read = async ({ end, first, complete }: TaskLog) => ({ end, first, complete });
    return (await this.#use(name, false, read)) ?? none;
  }

  /** The gaps of the log here. */
  async gaps(name: LogName): Promise<TaskLog["gaps"]> {
    return (await this.#use(name, false, async (log) => log.gaps)) ?? [];
  }

  /** Fills gaps with the bytes of a piece; resolves when they are on disk. */
  async fill(name: LogName, piece: LogPiece): Promise<void> {
    await this.#use(name, false, (log) => log.fill(piece));
    await this.#synced(name);
  }

  /** A piece from the offset on; undefined for an unknown log. */
  async read(name: LogName, offset: number, maxBytes: number): Promise<LogPiece | undefined> {
    return this.#use(name, false, (log) => log.read(offset, maxBytes));
  }

  /** The first offset received at that time or later; the end if there is none. */
  async offsetAt(name: LogName, unixMs: number): Promise<number> {
    return (await this.#use(name, false, async (log) => log.offsetAt(unixMs))) ?? 0;
  }

  /** The job's logs in this store. */
  async list(jobId: string): Promise<LogName[]> {
    const files = await readdir(join(this.#options.directory, jobId)).catch(() => []);
    return files.flatMap((file) => parseFileName(jobId, file) ?? []);
  }

  /** Removes the least recently written jobs' logs above the bounds. */
  async sweep(nowMs: number): Promise<void> {
    const { directory, maxBytes, maxAgeMs, log } = this.#options;
    const jobs = await Promise.all(
      (await readdir(directory).catch(() => [])).map((job) => folderUse(join(directory, job))),
    );
    let total = jobs.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const { path, bytes, writtenMs } of jobs.sort((a, b) => a.writtenMs - b.writtenMs)) {
      if (total <= maxBytes && nowMs - writtenMs <= maxAgeMs) break;
      log.info({ path, bytes }, "the logs of a job are removed for their age or size");
      await this.#remove(path);
      total -= bytes;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#sweepTimer);
    clearTimeout(this.#syncTimer);
    await this.#sync();
    for (const path of [...this.#held.keys()]) await this.#close(path);
  }

  async #use<T>(name: LogName, create: true, work: (log: TaskLog) => Promise<T>): Promise<T>;
  async #use<T>(
    name: LogName,
    create: boolean,
    work: (log: TaskLog) => Promise<T>,
  ): Promise<T | undefined>;
  async #use<T>(name: LogName, create: boolean, work: (log: TaskLog) => Promise<T>) {
    if (this.#closed) throw new AppError("unavailable", "this master is stopping");
    const path = this.#path(name);
    if (!create && !this.#held.has(path) && !(await taskLogExists(path, this.#files)))
      return undefined;
    this.#hold(path);
    try {
      const held = await this.#open(path);
      return await this.#inTurn(held, () => work(held.log));
    } finally {
      this.#release(path);
    }
  }

  #hold(path: string): void {
    this.#users.set(path, (this.#users.get(path) ?? 0) + 1);
    this.#idle.delete(path);
  }

  #release(path: string): void {
    const users = (this.#users.get(path) ?? 1) - 1;
    if (users > 0) {
      this.#users.set(path, users);
      return;
    }
    this.#users.delete(path);
    if (this.#held.has(path) && !this.#dirty.has(path)) this.#idle.add(path);
  }

  #open(path: string): Promise<Held> {
    const known = this.#held.get(path);
    if (known) return known;
    const opened = this.#files
      .makeFolder(dirname(path))
      .then(() => TaskLog.open(path, undefined, this.#files))
      .then((log): Held => ({ log, tail: Promise.resolve() }));
    this.#held.set(path, opened);
    opened.catch(() => this.#held.delete(path));
    void this.#closeOldest();
    return opened;
  }

  async #closeOldest(): Promise<void> {
    for (const path of this.#idle) {
      if (this.#held.size <= MAX_OPEN) return;
      await this.#close(path);
    }
  }

  async #close(path: string): Promise<void> {
    const opening = this.#held.get(path);
    this.#held.delete(path);
    this.#idle.delete(path);
    const held = await opening?.catch(() => undefined);
    await held?.tail;
    await held?.log.close();
  }

  /** Resolves when all that was appended to the log so far is on disk. */
  #synced(name: LogName): Promise<void> {
    const path = this.#path(name);
    this.#idle.delete(path);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#dirty.set(path, [...(this.#dirty.get(path) ?? []), { resolve, reject }]);
    if (!this.#syncTimer && !this.#closed) {
      this.#syncTimer = setTimeout(() => void this.#sync(), this.#syncPauseMs);
    }
    return promise;
  }

  async #sync(): Promise<void> {
    const dirty = [...this.#dirty];
    // None may be closed, and so forgotten, before its turn.
    for (const [path] of dirty) this.#hold(path);
    this.#dirty.clear();
    await forEachLimit(dirty, MAX_SYNCS, async ([path, waiting]) => {
      const held = await this.#held.get(path);
      try {
        if (held) await this.#inTurn(held, () => held.log.sync());
        for (const { resolve } of waiting) resolve();
      } catch (error) {
        this.#options.log.error({ path, error: toAppError(error).message }, "a log is not durable");
        for (const { reject } of waiting) reject(error);
      }
      this.#release(path);
    });
    this.#syncTimer = undefined;
    if (this.#dirty.size > 0 && !this.#closed) {
      this.#syncTimer = setTimeout(() => void this.#sync(), this.#syncPauseMs);
    }
  }

  #inTurn<T>(held: Held, work: () => Promise<T>): Promise<T> {
    const done = held.tail.then(work);
    held.tail = done.catch(() => {});
    return done;
  }

  async #remove(folder: string): Promise<void> {
    for (const path of [...this.#held.keys()]) {
      if (path.startsWith(`${folder}/`)) await this.#close(path);
    }
    await rm(folder, { recursive: true, force: true });
  }

  #path(name: LogName): string {
    return join(this.#options.directory, name.jobId, logFileName(name));
  }
}

async function folderUse(path: string) {
  let bytes = 0;
  let writtenMs = 0;
  for (const file of await readdir(path).catch(() => [])) {
    const found = await stat(join(path, file)).catch(() => undefined);
    bytes += (found?.blocks ?? 0) * STAT_BLOCK_BYTES;
    writtenMs = Math.max(writtenMs, found?.mtimeMs ?? 0);
  }
  return { path, bytes, writtenMs };
}

/** The unit of `stat`'s blocks, whatever the file system's are. */
const STAT_BLOCK_BYTES = 512;
