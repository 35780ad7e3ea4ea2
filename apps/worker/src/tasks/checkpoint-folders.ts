import { readdir, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import type { NodeLog } from "@heddle/rpc/node/log";

const jobFolder = /^job_[A-Za-z0-9]{1,60}$/;
/** Jobs that are named at once; the next time others are. */
const maxNamed = 1_000;

/**
 * The folders in which jobs that have no task on this worker have kept checkpoints, here or, where
 * several workers share them, anywhere. Which of them are needed no more the masters know alone.
 */
export class CheckpointFolders {
  readonly #root: string;
  readonly #runs: (jobId: string) => boolean;
  readonly #log: NodeLog;
  /** The last one that was named. */
  #last = "";
  #removing: Promise<void> = Promise.resolve();

  constructor(root: string, runs: (jobId: string) => boolean, log: NodeLog) {
    this.#root = root;
    this.#runs = runs;
    this.#log = log;
  }

  /** Ids of such jobs, in turn where they are many, once what was to be removed is gone. */
  async next(): Promise<string[]> {
    await this.#removing;
    const names = await readdir(this.#root).catch(() => []);
    const idle = names.filter((name) => jobFolder.test(name) && !this.#runs(name)).sort();
    const from = idle.findIndex((name) => name > this.#last);
    const named = idle.slice(Math.max(0, from), Math.max(0, from) + maxNamed);
    this.#last = named.length < maxNamed ? "" : (named.at(-1) ?? "");
    return named;
  }

  /**
   * Removes the folders of jobs that are over, of the second kind only where nothing is in them. It is
   * not waited for: many large files may take longer to remove than a lease lasts.
   */
  forget(jobIds: readonly string[], emptyJobIds: readonly string[]): void {
    this.#removing = this.#removing.then(() => this.#removeAll(jobIds, emptyJobIds));
  }

  async #removeAll(jobIds: readonly string[], emptyJobIds: readonly string[]): Promise<void> {
    for (const id of jobIds) {
      await this.#remove(id, (folder) => rm(folder, { recursive: true, force: true }));
    }
    for (const id of emptyJobIds) await this.#remove(id, (folder) => rmdir(folder));
  }

  async #remove(id: string, how: (folder: string) => Promise<void>): Promise<void> {
    if (!jobFolder.test(id) || this.#runs(id)) return;
    try {
      await how(join(this.#root, id));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // What a failed job has saved stays; another worker may have removed the rest.
      if (code === "ENOTEMPTY" || code === "ENOENT" || code === "EEXIST") return;
      this.#log.warn({ job: id, error: String(error) }, "checkpoints could not be removed");
    }
  }
}
