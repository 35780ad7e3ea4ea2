import { join } from "node:path";
import { pruneCheckpoints } from "./prune-checkpoints.ts";
import { readJson, writeJson } from "./task-directory.ts";

/**
 * The checkpoints that a rank of a job has named, of whatever attempt and worker: the list lies beside
 * them, so that each attempt goes on with that of the one before.
 */
export class CheckpointLedger {
  readonly #directory: string;
  readonly #path: string;
  readonly #keep: number;
  #names: string[] | undefined;

  /** `keep`: how many of the rank stay. */
  constructor(directory: string, rank: number, keep: number) {
    this.#directory = directory;
    this.#path = join(directory, `.heddle-rank-${rank}.json`);
    this.#keep = keep;
  }

  /** Takes in names of durable checkpoints, the latest last, and removes what is beyond the bound. */
  async add(names: readonly string[]): Promise<void> {
    const known = this.#names ?? (await this.#read());
    this.#names = await pruneCheckpoints(this.#directory, [...known, ...names], this.#keep);
    await writeJson(this.#path, this.#names);
  }

  async #read(): Promise<string[]> {
    const kept = await readJson(this.#path);
    return Array.isArray(kept) ? kept.filter((name) => typeof name === "string") : [];
  }
}
