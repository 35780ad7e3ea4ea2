import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { makeDirectoryBeneath } from "@heddle/base/beneath";
import { AppError, toAppError } from "@heddle/base/errors";
import { readJson, writeJson } from "../../records/task-directory.ts";
import { LaunchError } from "../executors/executor.ts";
import type { CheckpointCopies } from "./checkpoint-copies.ts";
import { checkpointBytes, pruneCheckpoints } from "./prune-checkpoints.ts";

/**
 * The most names that wait for the removal of earlier checkpoints; beyond it the oldest are left on
 * disk.
 */
const MAX_WAITING = 1_000;
/** More than 100 names of 512 characters, as JSON. The task can write the list too. */
const MAX_LIST_BYTES = 512 * 1024;
/** The most names without a copy that are remembered for removal. */
const MAX_DROPPED = 1_000;

interface LedgerHooks {
  /** Called when the folder exists. */
  readonly claim?: () => Promise<void>;
  readonly copies?: CheckpointCopies | undefined;
}

/**
 * The checkpoints that a rank of a job has named, of any attempt and worker. The list is stored
 * beside them, so that each attempt continues it.
 */
export class CheckpointLedger {
  readonly #root: string;
  readonly #jobId: string;
  /** Relative to the root. */
  readonly #path: string;
  readonly #keep: number;
  readonly #rank: number;
  readonly #claim: () => Promise<void>;
  readonly #copies: CheckpointCopies | undefined;
  #names: string[] | undefined;
  #waiting: string[] = [];
  #pruning: Promise<void> | undefined;
  /** The number of additions, and that of the latest one with a second copy. */
  #version = 0;
  #copiedVersion = 0;
  /** Names that are no longer kept; their copies are removed once the latest has its own. */
  #dropped: string[] = [];
  readonly #copying = new SerialQueue();

  /**
   * `root`: of all jobs' checkpoints, below which no link is followed; `keep`: the number of the
   * rank's checkpoints that stay.
   */
  constructor(
    root: string,
    { jobId, rank }: { readonly jobId: string; readonly rank: number },
    keep: number,
    { claim = async () => {}, copies }: LedgerHooks = {},
  ) {
    this.#claim = claim;
    this.#copies = copies;
    this.#rank = rank;
    this.#root = root;
    this.#jobId = jobId;
    this.#path = `${jobId}/.heddle-rank-${rank}.json`;
    this.#keep = keep;
  }

  /** The folder of the job's checkpoints. */
  get directory(): string {
    return join(this.#root, this.#jobId);
  }

  /**
   * Throws a LaunchError where another object has its name: no worker that shares it could do
   * better.
   */
  async makeDirectory(): Promise<void> {
    try {
      await mkdir(this.#root, { recursive: true, mode: 0o700 });
      await makeDirectoryBeneath(this.#root, this.#jobId);
    } catch (cause) {
      const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
      if (code !== "EEXIST" && code !== "ENOTDIR" && code !== "ELOOP") throw cause;
      const path = this.directory;
      const message = `its checkpoints need the folder ${path}, but there is a file or a link: remove it`;
      throw new LaunchError("LaunchFailed", message, cause);
    }
    await this.#claim();
  }

  /**
   * Adds names of durable checkpoints, the latest last. Resolves when those beyond the bound are
   * removed, which may take long.
   */
  add(names: readonly string[]): Promise<void> {
    this.#waiting = [...this.#waiting, ...names].slice(-MAX_WAITING);
    this.#pruning ??= this.#prune().finally(() => {
      this.#pruning = undefined;
    });
    return this.#pruning;
  }

  /** Resolves when no removal is in progress, also after a failure. */
  async settled(): Promise<void> {
    await this.#pruning?.catch(() => undefined);
  }

  async #prune(): Promise<void> {
    while (this.#waiting.length > 0) {
      const known = this.#names ?? (await this.#read());
      const names = [...known, ...this.#waiting];
      this.#waiting = [];
      const kept = await pruneCheckpoints(this.#root, this.#jobId, names, this.#keep);
      this.#names = kept;
      this.#version += 1;
      this.#dropped = [...this.#dropped, ...names]
        .filter((name) => !kept.includes(name))
        .slice(-MAX_DROPPED);
      await writeJson(this.#root, this.#path, kept);
    }
  }

  /** The bytes of the checkpoints that the rank keeps. */
  async measure(): Promise<number> {
    let bytes = 0;
    for (const name of this.#names ?? []) {
      bytes += await checkpointBytes(this.#root, this.#jobId, name);
    }
    return bytes;
  }

  /** Whether checkpoints have a second copy in another place. */
  get hasCopies(): boolean {
    return this.#copies !== undefined;
  }

  /**
   * Copies the latest checkpoint, one at a time: of those that are named meanwhile only the last is
   * copied.
   */
  copyLatest(): Promise<void> {
    return this.#copying.run(() => this.#copyLatest());
  }

  async #copyLatest(): Promise<void> {
    const copies = this.#copies;
    const latest = this.#names?.at(-1);
    const version = this.#version;
    if (!copies || latest === undefined || version === this.#copiedVersion) return;
    await copies.save(this.#jobId, this.#rank, latest);
    this.#copiedVersion = version;
    const dropped = this.#dropped;
    this.#dropped = [];
    for (const name of new Set(dropped)) {
      if (!this.#names?.includes(name)) await copies.drop(this.#jobId, this.#rank, name);
    }
  }

  /** Restores a missing checkpoint from its second copy. */
  async restore(name: string): Promise<void> {
    if (name === "") return;
    try {
      await this.#copies?.restore(this.#jobId, name);
    } catch (cause) {
      const { code, message } = toAppError(cause);
      const what = `its checkpoint ${name} could not be brought back from its second copy`;
      throw new AppError(code, `${what}: ${message}`, { cause });
    }
  }

  async #read(): Promise<string[]> {
    const kept = await readJson(this.#root, this.#path, MAX_LIST_BYTES);
    const names = Array.isArray(kept) ? kept.slice(-this.#keep) : [];
    return names.filter((name) => typeof name === "string");
  }
}
