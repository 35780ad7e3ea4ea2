import { randomUUID } from "node:crypto";
import {
  closeSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { tryLock } from "./libc.ts";

/** The folder of all workers of this machine; it is empty after a boot. */
const MACHINE_FOLDER = "/run/heddle/task-users";
const LOCK_NAME = "lock";
/** A worker holds the lock for one scan of the machine's processes. */
const MAX_LOCK_MS = 5_000;
const LOCK_POLL_MS = 2;

/** What a worker uses now. */
export interface Claims {
  /** The directory of the checkpoints of its jobs. */
  readonly root: string;
  /** Users by the ids of their jobs. */
  readonly jobs: Readonly<Record<string, number>>;
}

/**
 * The users that a machine's workers use, each worker's own in a file that it locks. The kernel
 * ends the lock with the worker, and so shows which files are stale.
 */
export class UserClaims {
  readonly #folder: string;
  readonly #root: string;
  #file: { readonly name: string; readonly descriptor: number } | undefined;

  /** `folders`: the first that can be made is taken. */
  constructor(root: string, folders = [MACHINE_FOLDER, join(root, ".task-users")]) {
    this.#root = root;
    this.#folder = usable(folders);
  }

  /** Chooses with the claims of all other workers, while none of them can. */
  update<T>(choose: (others: readonly Claims[]) => { result: T; jobs: Claims["jobs"] }): T {
    const lock = openSync(join(this.#folder, LOCK_NAME), "a", 0o600);
    try {
      awaitLock(lock, this.#folder);
      const { result, jobs } = choose(this.#others());
      this.#write({ root: this.#root, jobs });
      return result;
    } finally {
      closeSync(lock);
    }
  }

  /** Ends all claims of this worker. */
  close(): void {
    if (!this.#file) return;
    rmSync(join(this.#folder, this.#file.name), { force: true });
    closeSync(this.#file.descriptor);
    this.#file = undefined;
  }

  #others(): Claims[] {
    const names = readdirSync(this.#folder);
    return names
      .filter((name) => name.endsWith(".json") && name !== this.#file?.name)
      .flatMap((name) => readLive(join(this.#folder, name)) ?? []);
  }

  #write(claims: Claims): void {
    this.#file ??= this.#open();
    const text = Buffer.from(JSON.stringify(claims));
    // Others read it once the lock is free. To empty it first would give its blocks back each time.
    writeSync(this.#file.descriptor, text, 0, text.byteLength, 0);
    ftruncateSync(this.#file.descriptor, text.byteLength);
  }

  #open() {
    const name = `${randomUUID()}.json`;
    const descriptor = openSync(join(this.#folder, name), "wx", 0o600);
    if (!tryLock(descriptor)) throw new Error(`another process has locked ${name}`);
    return { name, descriptor };
  }
}

/** Undefined of a worker that has ended, whose file is removed. */
function readLive(path: string): Claims | undefined {
  const descriptor = openSync(path, "r");
  try {
    if (!tryLock(descriptor)) return JSON.parse(readFileSync(descriptor, "utf8")) as Claims;
    rmSync(path);
    return undefined;
  } finally {
    closeSync(descriptor);
  }
}

function usable(folders: readonly string[]): string {
  const faults: string[] = [];
  for (const folder of folders) {
    try {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      closeSync(openSync(join(folder, LOCK_NAME), "a", 0o600));
      return folder;
    } catch (error) {
      faults.push((error as Error).message);
    }
  }
  throw new Error(`no folder for the users of tasks: ${faults.join("; ")}`);
}

function awaitLock(descriptor: number, folder: string): void {
  const giveUpAtMs = performance.now() + MAX_LOCK_MS;
  const pause = new Int32Array(new SharedArrayBuffer(4));
  while (!tryLock(descriptor)) {
    if (performance.now() > giveUpAtMs)
      throw new Error(
        `another worker of this machine has held ${join(folder, LOCK_NAME)} for ${MAX_LOCK_MS} ms: look for one that is stopped`,
      );
    Atomics.wait(pause, 0, 0, LOCK_POLL_MS);
  }
}
