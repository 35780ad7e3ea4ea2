import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { makeDirectoryBeneath } from "@heddle/base/beneath";
import { LaunchError } from "./executor.ts";
import { pruneCheckpoints } from "./prune-checkpoints.ts";
import { readJson, writeJson } from "./task-directory.ts";

/** Names that wait while earlier checkpoints are removed; of more the oldest are left where they are. */
const maxWaiting = 1_000;
/** More than 100 names of 512 characters, as JSON. The task can write the list too. */
const maxListBytes = 512 * 1024;

/**
 * The checkpoints that a rank of a job has named, of whatever attempt and worker: the list lies beside
 * them, so that each attempt goes on with that of the one before.
 */
export class CheckpointLedger {
  readonly #root: string;
  readonly #jobId: string;
  /** From the root. */
  readonly #path: string;
  readonly #keep: number;
  readonly #claim: () => Promise<void>;
  #names: string[] | undefined;
  #waiting: string[] = [];
  #pruning: Promise<void> | undefined;

  /**
   * `root`: of all jobs' checkpoints, below which no link is followed; `keep`: how many of the rank stay;
   * `claim`: called when the folder is there.
   */
  constructor(
    root: string,
    { jobId, rank }: { readonly jobId: string; readonly rank: number },
    keep: number,
    claim = async () => {},
  ) {
    this.#claim = claim;
    this.#root = root;
    this.#jobId = jobId;
    this.#path = `${jobId}/.heddle-rank-${rank}.json`;
    this.#keep = keep;
  }

  /** Where something else has its name no worker that shares it can do better: a LaunchError. */
  async makeDirectory(): Promise<void> {
    try {
      await mkdir(this.#root, { recursive: true, mode: 0o700 });
      await makeDirectoryBeneath(this.#root, this.#jobId);
    } catch (cause) {
      const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
      if (code !== "EEXIST" && code !== "ENOTDIR" && code !== "ELOOP") throw cause;
      const path = join(this.#root, this.#jobId);
      const message = `its checkpoints need the folder ${path}, but there is a file or a link: remove it`;
      throw new LaunchError("LaunchFailed", message, cause);
    }
    await this.#claim();
  }

  /**
   * Takes in names of durable checkpoints, the latest last. Resolves when what is beyond the bound is
   * removed, which takes long where that is much.
   */
  add(names: readonly string[]): Promise<void> {
    this.#waiting = [...this.#waiting, ...names].slice(-maxWaiting);
    this.#pruning ??= this.#prune().finally(() => {
      this.#pruning = undefined;
    });
    return this.#pruning;
  }

  /** Resolves when nothing is being removed, also where that has failed. */
  async settled(): Promise<void> {
    await this.#pruning?.catch(() => undefined);
  }

  async #prune(): Promise<void> {
    while (this.#waiting.length > 0) {
      const known = this.#names ?? (await this.#read());
      const names = [...known, ...this.#waiting];
      this.#waiting = [];
      this.#names = await pruneCheckpoints(this.#root, this.#jobId, names, this.#keep);
      await writeJson(this.#root, this.#path, this.#names);
    }
  }

  async #read(): Promise<string[]> {
    const kept = await readJson(this.#root, this.#path, maxListBytes);
    const names = Array.isArray(kept) ? kept.slice(-this.#keep) : [];
    return names.filter((name) => typeof name === "string");
  }
}
