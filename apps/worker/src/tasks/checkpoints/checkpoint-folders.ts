import { lstat, opendir, readdir, rename, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { openFileBeneath, removeBeneath, replaceFileBeneath } from "@heddle/base/beneath";
import type { NodeLog } from "@heddle/rpc/node/log";

const jobFolder = /^job_[A-Za-z0-9]{1,60}$/;
/** Jobs that are named at once; the next time others are. */
const maxNamed = 1_000;
/** In a job's folder: the id of the cluster that has run the job last. */
const claimFile = ".heddle-cluster";
const maxClusterBytes = 256;
/** Before the name of a folder that is being removed. */
const overPrefix = ".over-";
/**
 * How long the folder of a job that the masters do not know is kept after the last change of what
 * lies in it: as long as ended jobs are remembered. Until then a backup may bring the job back.
 */
const keepUnknownMs = 7 * 24 * 3_600_000;
/** Folders of nobody that are told; further ones are not. */
const maxTold = 1_000;
/** Things in a folder that are looked at; one with more is kept. */
const maxLookedAt = 10_000;

/**
 * The folders in which jobs that have no task on this worker have kept checkpoints, here or, where
 * several workers share them, anywhere. Which of them are needed no more the masters know alone.
 */
export class CheckpointFolders {
  readonly #root: string;
  readonly #runs: (jobId: string) => boolean;
  readonly #log: NodeLog;
  readonly #onOver: (jobId: string) => Promise<void>;
  /** The id of the cluster that this worker serves; empty until its leader has told it. */
  cluster = "";
  /** Jobs whose folders are nobody's, which was told. */
  readonly #told = new Set<string>();
  /** The last one that was named. */
  #last = "";
  #removing: Promise<void> = Promise.resolve();

  /** `onOver` is called for each job that is over, once its folder is gone. */
  constructor(
    root: string,
    runs: (jobId: string) => boolean,
    log: NodeLog,
    onOver = async (_jobId: string): Promise<void> => {},
  ) {
    this.#onOver = onOver;
    this.#root = root;
    this.#runs = runs;
    this.#log = log;
  }

  /** Notes in the job's folder that it is this cluster's, whoever's it was before. */
  async claim(jobId: string): Promise<void> {
    if (this.cluster === "" || !jobFolder.test(jobId)) return;
    if ((await this.#ownerOf(jobId)) === this.cluster) return;
    try {
      await replaceFileBeneath(this.#root, `${jobId}/${claimFile}`, this.cluster);
    } catch (error) {
      // The folder is kept then, whatever becomes of its job.
      this.#log.warn({ job: jobId, error: String(error) }, "a checkpoint folder was not claimed");
    }
  }

  /** The cluster that has claimed the job's folder. */
  async #ownerOf(jobId: string): Promise<string | undefined> {
    const path = `${jobId}/${claimFile}`;
    const file = await openFileBeneath(this.#root, path).catch(() => undefined);
    // The task can write it too: of what is longer than an id the beginning is no id of a cluster.
    const bytes = Buffer.alloc(maxClusterBytes);
    try {
      const read = await file?.read(bytes, 0, maxClusterBytes, 0).catch(() => undefined);
      return read && bytes.toString("utf8", 0, read.bytesRead);
    } finally {
      await file?.close();
    }
  }

  /** Ids of such jobs, in turn where they are many, once what was to be removed is gone. */
  async next(): Promise<string[]> {
    await this.#removing;
    const names = await readdir(this.#root).catch(() => []);
    // What an earlier process has begun to remove.
    for (const name of names.filter((each) => each.startsWith(overPrefix))) {
      await removeBeneath(this.#root, name).catch(() => undefined);
    }
    const idle = names.filter((name) => jobFolder.test(name) && !this.#runs(name)).sort();
    const from = idle.findIndex((name) => name > this.#last);
    const named = idle.slice(Math.max(0, from), Math.max(0, from) + maxNamed);
    this.#last = named.length < maxNamed ? "" : (named.at(-1) ?? "");
    return named;
  }

  /**
   * Removes the folders of jobs that are over, of the second kind only where nothing is in them, and
   * of those that nobody knows such as were this cluster's and have not been changed for a week. One that
   * no cluster has claimed may be another's, and is told for somebody to look at. It is not waited for:
   * many large files may take longer to remove than a lease lasts.
   */
  forget(
    jobIds: readonly string[],
    emptyJobIds: readonly string[],
    unknownJobIds: readonly string[],
  ): void {
    const { cluster } = this;
    this.#removing = this.#removing.then(async () => {
      for (const id of jobIds) {
        await this.#remove(id, async () => {
          await removeBeneath(this.#root, id);
          await this.#onOver(id);
        });
      }
      for (const id of emptyJobIds) {
        await this.#remove(id, async (folder) => {
          for await (const { name } of await opendir(folder)) if (name !== claimFile) return;
          await removeBeneath(this.#root, `${id}/${claimFile}`);
          await rmdir(folder);
        });
      }
      for (const id of unknownJobIds) await this.#removeUnknown(id, cluster);
    });
  }

  async #removeUnknown(id: string, cluster: string): Promise<void> {
    if (!jobFolder.test(id) || cluster === "") return;
    const owner = await this.#ownerOf(id);
    if (owner !== undefined && owner !== cluster) return;
    await this.#remove(id, async (folder) => {
      const idleMs = Date.now() - (await lastChangeMs(folder));
      if (idleMs < keepUnknownMs) return;
      if (owner === undefined) return this.#tellUnclaimed(folder, id);
      // Away at once, so that a job that takes the name anew begins with a folder of its own.
      const away = join(this.#root, `${overPrefix}${id}`);
      await rename(folder, away);
      await removeBeneath(this.#root, `${overPrefix}${id}`);
      this.#log.info(
        { job: id },
        "checkpoints of a job that the masters have forgotten are removed",
      );
    });
  }

  /** Once in this process's life: from before folders were claimed, or while the disk was full. */
  #tellUnclaimed(directory: string, job: string): void {
    if (this.#told.has(job) || this.#told.size >= maxTold) return;
    this.#told.add(job);
    const advice = `remove it, or write the cluster's id (${this.cluster}) to its file ${claimFile}`;
    this.#log.warn(
      { job, directory, advice },
      "checkpoints of a job that the masters do not know, for a week unchanged and claimed by no cluster, are kept",
    );
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

/** When the folder or something right in it was changed last; never, where too much is in it. */
async function lastChangeMs(folder: string): Promise<number> {
  let lastMs = (await lstat(folder)).mtimeMs;
  let count = 0;
  for await (const { name } of await opendir(folder, { encoding: "latin1" })) {
    if (++count > maxLookedAt) return Number.POSITIVE_INFINITY;
    const path = Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name, "latin1")]);
    lastMs = Math.max(lastMs, (await lstat(path)).mtimeMs);
  }
  return lastMs;
}
