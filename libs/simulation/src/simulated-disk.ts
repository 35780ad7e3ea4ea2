import type { OpenMode, StorageFile, StorageFiles } from "@heddle/storage/storage-files";
import type { Dice } from "./dice.ts";

/** The environment of a disk, and its callbacks. */
export interface DiskPorts {
  readonly dice: Dice;
  /** Runs the end of an operation that takes time. */
  readonly after: (delayUs: number, run: () => void) => void;
  /** The duration of an operation. */
  readonly latencyUs: () => number;
  /** Notifies the process of an operation's end; a paused process runs it later. */
  readonly notify: (run: () => void) => void;
  /** Bytes that were written in durable mode are on the disk. */
  readonly onDurable: (path: string, bytes: Uint8Array) => void;
  /** A process wrote to a file after a failed write or sync of it. */
  readonly onMisuse: (what: string) => void;
}

/** The faults of the disk; all off by default. */
export interface DiskFaults {
  /** The share of writes and syncs that fail. */
  failures: number;
  /** The share of durable writes that go to another position in the file. */
  misdirections: number;
  /** A bug for self-tests: durable writes and syncs are answered before they are done. */
  lies: "never" | "answersEarly" | "skipsSync";
}

/** The unit of torn writes: a crash keeps or loses whole sectors. */
const SECTOR_BYTES = 64;

interface Write {
  readonly position: number;
  readonly bytes: Buffer;
  /**
   * True once the process that wrote it was killed: it is in the page cache, and may be on the
   * disk.
   */
  isInherited?: true;
}

interface Inode {
  /** The content for processes. */
  view: Buffer;
  /** The content after a power cut that loses all that is pending. */
  stable: Buffer;
  /** Writes that are not synced, oldest first; a crash keeps any sectors of them. */
  pending: Write[];
  /** A misdirected durable write, until a later write reveals that it is missing. */
  misdirected: { readonly at: number; readonly old: Buffer; readonly write: Write } | undefined;
}

type NameChange = (names: Map<string, Inode>) => void;

/** The error of an operation that the simulation made fail. */
class DiskFailure extends Error {
  override readonly name = "DiskFailure";
}

/**
 * A disk in memory, which outlives the processes that use it.
 *
 * - A crash loses or tears what was not synced, sector by sector.
 * - Names are durable once their directory is synced; a crash before that keeps some prefix of the
 *   changes.
 */
export class SimulatedDisk implements StorageFiles {
  readonly faults: DiskFaults = { failures: 0, misdirections: 0, lies: "never" };
  /** Operations that were made to fail since the last crash. */
  failed = 0;
  readonly #ports: DiskPorts;
  #names = new Map<string, Inode>();
  #stableNames = new Map<string, Inode>();
  #nameChanges: NameChange[] = [];
  /** Increases with every crash: operations of an earlier process are never answered. */
  #process = 0;

  constructor(ports: DiskPorts) {
    this.#ports = ports;
  }

  /**
   * The process is killed and the machine keeps running. The next process reads all that this one
   * wrote, though a later power cut may lose what was not synced. Returns the writes in progress.
   */
  kill(): Uint8Array[] {
    this.#process++;
    this.failed = 0;
    const torn = this.#underWay();
    for (const inode of new Set(this.#names.values())) {
      for (const write of inode.pending) {
        const end = write.position + write.bytes.length;
        if (end > inode.view.length) inode.view = resized(inode.view, end);
        write.bytes.copy(inode.view, write.position);
        write.isInherited = true;
      }
      // The page cache has a misdirected write as the disk has it.
      if (inode.misdirected) undoMisdirection(inode, inode.misdirected);
      inode.misdirected = undefined;
    }
    return torn;
  }

  /**
   * The machine loses power, and with it some or all that was not synced. Returns the writes in
   * progress.
   */
  crash(loses: "some" | "all" = "some"): Uint8Array[] {
    this.#process++;
    this.failed = 0;
    const { dice } = this.#ports;
    const kept = loses === "all" ? 0 : dice.whole(0, this.#nameChanges.length + 1);
    for (const change of this.#nameChanges.slice(0, kept)) change(this.#stableNames);
    this.#nameChanges = [];
    this.#names = new Map(this.#stableNames);
    const torn = this.#underWay();
    for (const inode of new Set(this.#names.values())) {
      if (loses === "some") for (const write of inode.pending) this.#tear(inode, write);
      inode.pending = [];
      // Nothing reveals that this write is missing: no log can detect such damage, so it is undone.
      if (inode.misdirected) undoMisdirection(inode, inode.misdirected);
      inode.misdirected = undefined;
      inode.view = Buffer.from(inode.stable);
    }
    return torn;
  }

  /** The writes of the ending process that were not acknowledged. */
  #underWay(): Uint8Array[] {
    const pending = [...new Set(this.#names.values())].flatMap((inode) => inode.pending);
    return pending.filter(({ isInherited }) => !isInherited).map(({ bytes }) => bytes);
  }

  /** The disk for a process of now: its operations after the next crash never happen. */
  mount(): StorageFiles {
    const process = this.#process;
    const alive = <T>(operation: () => Promise<T>): Promise<T> =>
      process === this.#process ? operation() : new Promise(() => undefined);
    return {
      makeDirectory: () => alive(() => this.makeDirectory()),
      list: (directory) => alive(() => this.list(directory)),
      rename: (from, to) => alive(() => this.rename(from, to)),
      remove: (path) => alive(() => this.remove(path)),
      syncDirectory: () => alive(() => this.syncDirectory()),
      open: (path, mode) => alive(async () => mountedFile(await this.open(path, mode), alive)),
    };
  }

  paths(): string[] {
    return [...this.#names.keys()].sort();
  }

  /** The content for a process. */
  content(path: string): Buffer {
    return this.#names.get(path)?.view ?? Buffer.alloc(0);
  }

  /** Flips one bit of a file, on the disk and in the cache. */
  flipBit(path: string, byte: number, bit: number): void {
    const inode = this.#names.get(path);
    for (const bytes of inode ? [inode.view, inode.stable] : []) {
      if (byte < bytes.length) bytes[byte] = (bytes[byte] as number) ^ (1 << bit);
    }
  }

  /** Replaces the disk with an empty one. */
  wipe(): void {
    this.#names.clear();
    this.#stableNames.clear();
    this.#nameChanges = [];
  }

  async makeDirectory(): Promise<void> {}

  async list(directory: string): Promise<string[]> {
    const prefix = `${directory}/`;
    return this.paths()
      .filter((path) => path.startsWith(prefix))
      .map((path) => path.slice(prefix.length))
      .filter((name) => !name.includes("/"));
  }

  async open(path: string, mode: OpenMode): Promise<StorageFile> {
    let inode = this.#names.get(path);
    if (!inode && mode === "read") throw new Error(`ENOENT: there is no file ${path}`);
    if (!inode) {
      const created = { view: Buffer.alloc(0), stable: Buffer.alloc(0), pending: [] };
      inode = { ...created, misdirected: undefined };
      const file = inode;
      this.#rename((names) => names.set(path, file));
    }
    return this.#file(path, inode, mode === "durable");
  }

  async rename(from: string, to: string): Promise<void> {
    const inode = this.#names.get(from);
    if (!inode) throw new Error(`there is no file ${from}`);
    this.#rename((names) => {
      names.delete(from);
      names.set(to, inode);
    });
  }

  async remove(path: string): Promise<void> {
    this.#rename((names) => names.delete(path));
  }

  syncDirectory(): Promise<void> {
    const changes = this.#nameChanges.length;
    return this.#operation("sync", () => {
      for (const change of this.#nameChanges.splice(0, changes)) change(this.#stableNames);
    });
  }

  #rename(change: NameChange): void {
    change(this.#names);
    this.#nameChanges.push(change);
  }

  #file(path: string, inode: Inode, isDurable: boolean): StorageFile {
    let hasFailed = false;
    const guard = <T>(operation: Promise<T>): Promise<T> => {
      operation.catch(() => {
        hasFailed = true;
      });
      return operation;
    };
    return {
      write: (buffer, position) => {
        if (hasFailed) this.#ports.onMisuse(`${path} is written to after a failed write or sync`);
        return guard(this.#write(path, inode, { position, bytes: Buffer.from(buffer) }, isDurable));
      },
      read: async (length, position) =>
        Uint8Array.prototype.slice.call(inode.view, position, position + length),
      size: async () => inode.view.length,
      truncate: async (size) => {
        inode.view = resized(inode.view, size);
        inode.pending = inode.pending.filter(({ position }) => position < size);
      },
      sync: () => {
        const view = Buffer.from(inode.view);
        const pending = inode.pending.length;
        return guard(
          this.#operation("sync", () => {
            inode.stable = view;
            inode.pending.splice(0, pending);
          }),
        );
      },
      close: async () => undefined,
    };
  }

  #write(path: string, inode: Inode, write: Write, isDurable: boolean): Promise<void> {
    const { dice, onDurable } = this.#ports;
    const end = write.position + write.bytes.length;
    if (end > inode.view.length) inode.view = resized(inode.view, end);
    inode.pending.push(write);
    if (!isDurable) {
      write.bytes.copy(inode.view, write.position);
      if (!dice.chance(this.faults.failures)) return Promise.resolve();
      return Promise.reject(this.#failure("write"));
    }
    return this.#operation("write", () => {
      inode.pending = inode.pending.filter((other) => other !== write);
      inode.misdirected = undefined;
      if (end > inode.stable.length) inode.stable = resized(inode.stable, end);
      if (dice.chance(this.faults.misdirections)) misdirect(inode, write, dice);
      else for (const bytes of [inode.view, inode.stable]) write.bytes.copy(bytes, write.position);
      onDurable(path, write.bytes);
    });
  }

  /** Resolves after the operation's duration and effect, unless it is made to fail. */
  #operation(what: "write" | "sync", effect: () => void): Promise<void> {
    const { dice, after, latencyUs, notify } = this.#ports;
    const process = this.#process;
    const { lies } = this.faults;
    const fails = dice.chance(this.faults.failures);
    return new Promise((resolve, reject) => {
      if (lies !== "never") resolve();
      if (lies === "skipsSync" && dice.chance(0.9)) return;
      after(latencyUs(), () => {
        if (process !== this.#process) return;
        if (!fails) effect();
        const failure = fails ? this.#failure(what) : undefined;
        notify(() => {
          if (process !== this.#process) return;
          if (failure) reject(failure);
          else resolve();
        });
      });
    });
  }

  #failure(what: "write" | "sync"): DiskFailure {
    this.failed++;
    const code = this.#ports.dice.chance(0.5) ? "ENOSPC" : "EIO";
    return new DiskFailure(`${code}: the simulated disk fails a ${what}`);
  }

  /** Any sectors of a write in progress may be on the disk: none, all, the first, or some. */
  #tear(inode: Inode, { position, bytes }: Write): void {
    const { dice } = this.#ports;
    const share = dice.pick([0, 1, 0.5, 0.9]);
    const end = dice.chance(0.5) ? bytes.length : dice.whole(0, bytes.length + 1);
    for (let from = 0; from < end; ) {
      const until = Math.min(end, from + SECTOR_BYTES - ((position + from) % SECTOR_BYTES));
      if (share === 1 || dice.chance(share)) {
        if (position + until > inode.stable.length) {
          inode.stable = resized(inode.stable, position + until);
        }
        bytes.copy(inode.stable, position + from, from, until);
      }
      from = until;
    }
  }
}

function mountedFile(
  file: StorageFile,
  alive: <T>(operation: () => Promise<T>) => Promise<T>,
): StorageFile {
  return {
    write: (buffer, position) => alive(() => file.write(buffer, position)),
    read: (length, position) => alive(() => file.read(length, position)),
    size: () => alive(() => file.size()),
    truncate: (size) => alive(() => file.truncate(size)),
    sync: () => alive(() => file.sync()),
    close: () => alive(() => file.close()),
  };
}

function resized(bytes: Buffer, size: number): Buffer {
  if (size <= bytes.length) return Buffer.from(bytes.subarray(0, size));
  const larger = Buffer.alloc(size);
  bytes.copy(larger);
  return larger;
}

/** Writes to another position of the file; the bytes at the right one stay. */
function misdirect(inode: Inode, write: Write, dice: Dice): void {
  const { length } = write.bytes;
  const at = dice.whole(0, Math.max(1, (inode.stable.length - length) / 8)) * 8;
  const isNear = Math.abs(at - write.position) < length;
  const target = isNear ? write.position : at;
  inode.misdirected = isNear
    ? undefined
    : { at, old: Buffer.from(inode.stable.subarray(at, at + length)), write };
  for (const bytes of [inode.view, inode.stable]) write.bytes.copy(bytes, target);
}

function undoMisdirection(
  inode: Inode,
  { at, old, write }: NonNullable<Inode["misdirected"]>,
): void {
  for (const bytes of [inode.view, inode.stable]) {
    old.copy(bytes, at);
    write.bytes.copy(bytes, write.position);
  }
}
