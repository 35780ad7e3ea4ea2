import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { apply, emptyState } from "@heddle/control/apply";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { type ControlSnapshot, fromSnapshot, toSnapshot } from "@heddle/control/snapshot";
import type { ControlState } from "@heddle/control/state";
import type { Logger } from "@heddle/observability/logger";
import type { ControlPlane } from "../ports.ts";
import { type DirectoryLock, lockDirectory } from "./directory-lock.ts";
import { decodeLines, encodeLine, type JournalFile, openJournalFile } from "./journal-file.ts";

export interface JournalOptions {
  /** The directory, made if missing and kept to this process. */
  readonly directory: string;
  readonly logger: Logger;
  /** The log is folded into a snapshot when it has grown to this size. */
  readonly compactAtBytes?: number;
}

/** Proposals that may wait for the disk; more are refused with `overloaded`. */
const MAX_WAITING = 10_000;
/** Commands in one synced write. */
const MAX_BATCH = 512;
const DEFAULT_COMPACT_BYTES = 4 * 1024 * 1024;

interface Waiting {
  readonly command: ControlCommand;
  resolve(reply: ControlReply): void;
  reject(error: AppError): void;
}

/**
 * The control plane of a group of one master: a log on the local disk. Commands that arrive while
 * the disk is busy share the next sync. A command is applied after it is durable, and a refused
 * one is in the log too, so that replaying gives the same state. `snapshot-N` is the state after N
 * commands, `journal-N` holds the commands that follow it.
 */
export class Journal implements ControlPlane {
  readonly #options: JournalOptions;
  readonly #lock: DirectoryLock;
  readonly #listeners = new Set<(command: ControlCommand) => void>();
  #state: ControlState;
  #file: JournalFile;
  #applied: number;
  #waiting: Waiting[] = [];
  #writing: Promise<void> | undefined;
  /** Why nothing is written any more: after a failed sync the disk's content is unknown. */
  #broken: AppError | undefined;

  private constructor(options: JournalOptions, lock: DirectoryLock, opened: Opened) {
    this.#options = options;
    this.#lock = lock;
    this.#state = opened.state;
    this.#file = opened.file;
    this.#applied = opened.applied;
  }

  /** Locks the directory and replays it. Throws where it is in use or damaged. */
  static async open(options: JournalOptions): Promise<Journal> {
    await mkdir(options.directory, { recursive: true, mode: 0o700 });
    const lock = await lockDirectory(options.directory);
    try {
      return new Journal(options, lock, await openDirectory(options));
    } catch (error) {
      await lock.close();
      throw error;
    }
  }

  get state(): ControlState {
    return this.#state;
  }

  get fault(): AppError | undefined {
    return this.#broken;
  }

  /** Commands applied since the cluster began. */
  get appliedIndex(): number {
    return this.#applied;
  }

  propose(command: ControlCommand): Promise<ControlReply> {
    if (this.#broken) return Promise.reject(this.#broken);
    if (this.#waiting.length >= MAX_WAITING) {
      const message = `${MAX_WAITING} changes wait for the disk already.`;
      return Promise.reject(new AppError("overloaded", message, { retryAfterMs: 1000 }));
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ command, resolve, reject });
      this.#writing ??= this.#writeAll();
    });
  }

  onApplied(listener: (command: ControlCommand) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Waits for what was proposed, then lets go of the directory. */
  async close(): Promise<void> {
    const closing = new AppError("unavailable", "The control plane is closed.");
    await this.#writing;
    this.#broken ??= closing;
    await this.#file.close();
    await this.#lock.close();
  }

  /** The only writer: one batch after the other until none waits. Never rejects. */
  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_BATCH);
      try {
        await this.#file.append(batch.map(({ command }) => command));
      } catch (error) {
        this.#break(error, batch);
        break;
      }
      for (const waiting of batch) waiting.resolve(this.#apply(waiting.command));
      await this.#compactIfLarge();
      if (this.#broken) break;
    }
    this.#writing = undefined;
  }

  #apply(command: ControlCommand): ControlReply {
    const reply = apply(this.#state, command);
    this.#applied++;
    for (const listener of this.#listeners) listener(command);
    return reply;
  }

  #break(error: unknown, batch: readonly Waiting[]): void {
    const why = error instanceof Error ? error.message : String(error);
    const message = `The control log could not be written (${why}). Free or mend the disk under ${this.#options.directory} and restart this master.`;
    this.#broken = new AppError("unavailable", message, { cause: error });
    this.#options.logger.fatal({ err: error }, message);
    for (const { reject } of [...batch, ...this.#waiting.splice(0)]) reject(this.#broken);
  }

  /**
   * Until the snapshot is in place a failure leaves the log as it is. From then on it does not: the
   * old log must take no further command, since a restart would read the snapshot and not the log.
   */
  async #compactIfLarge(): Promise<void> {
    const { directory, logger, compactAtBytes = DEFAULT_COMPACT_BYTES } = this.#options;
    if (this.#file.sizeBytes < compactAtBytes) return;
    const path = snapshotPath(directory, this.#applied);
    try {
      await writeSynced(`${path}.tmp`, encodeLine(toSnapshot(this.#state)));
    } catch (error) {
      logger.error({ err: error }, "the control log could not be compacted");
      return;
    }
    try {
      await rename(`${path}.tmp`, path);
      const { file } = await openJournalFile(journalPath(directory, this.#applied));
      await syncDirectory(directory);
      await this.#file.close();
      this.#file = file;
      await removeOlder(directory, this.#applied);
    } catch (error) {
      this.#break(error, []);
    }
  }
}

interface Opened {
  readonly state: ControlState;
  readonly file: JournalFile;
  readonly applied: number;
}

async function openDirectory({ directory, logger }: JournalOptions): Promise<Opened> {
  const base = await latestSnapshot(directory);
  const state = base === 0 ? emptyState() : await readSnapshot(directory, base);
  const path = journalPath(directory, base);
  const { file, values, cutBytes } = await openJournalFile(path);
  await syncDirectory(directory);
  if (cutBytes > 0) logger.warn({ path, cutBytes }, "cut a torn record off the control log");
  let applied = base;
  for (const batch of values as ControlCommand[][]) {
    for (const command of batch) {
      apply(state, command);
      applied++;
    }
  }
  await removeOlder(directory, base);
  return { state, file, applied };
}

async function latestSnapshot(directory: string): Promise<number> {
  const names = await readdir(directory);
  const numbers = names.map((name) => Number(/^snapshot-(\d+)$/.exec(name)?.[1] ?? 0));
  const latest = Math.max(0, ...numbers);
  const orphan = names.find((name) => indexOf(name, "journal") > latest);
  if (orphan !== undefined) {
    const message = `${join(directory, orphan)} continues a snapshot that is missing. Restore the directory from a copy.`;
    throw new AppError("server_error", message);
  }
  return latest;
}

function indexOf(name: string, kind: string): number {
  const [prefix, digits] = name.split("-");
  return prefix === kind && digits !== undefined && /^\d+$/.test(digits) ? Number(digits) : -1;
}

async function readSnapshot(directory: string, applied: number): Promise<ControlState> {
  const path = snapshotPath(directory, applied);
  const { values } = decodeLines(await readFile(path), path);
  if (values.length !== 1) {
    const message = `${path} is damaged: its checksum does not match. Restore it from a copy.`;
    throw new AppError("server_error", message);
  }
  return fromSnapshot(values[0] as ControlSnapshot);
}

async function writeSynced(path: string, text: string): Promise<void> {
  const file = await open(path, "w", 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function removeOlder(directory: string, base: number): Promise<void> {
  for (const name of await readdir(directory)) {
    const index = Math.max(indexOf(name, "journal"), indexOf(name, "snapshot"));
    const isLeftover = /^snapshot-\d+\.tmp$/.test(name);
    if (isLeftover || (index >= 0 && index < base))
      await rm(join(directory, name), { force: true });
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function journalPath(directory: string, base: number): string {
  return join(directory, `journal-${base}`);
}

function snapshotPath(directory: string, applied: number): string {
  return join(directory, `snapshot-${applied}`);
}
