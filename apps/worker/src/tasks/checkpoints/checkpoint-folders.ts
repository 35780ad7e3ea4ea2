import { lstat, opendir, readdir, rename, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { openFileBeneath, removeBeneath, replaceFileBeneath } from "@heddle/base/beneath";
import type { Log } from "@heddle/observability/logger";

const JOB_FOLDER = /^job_[A-Za-z0-9]{1,60}$/;
/** The most jobs in one report; the next report has others. */
const MAX_NAMED = 1_000;
/** In a job's folder: the id of the cluster that has run the job last. */
const CLAIM_FILE = ".heddle-cluster";
const MAX_CLUSTER_BYTES = 256;
/** The prefix of a folder that is being removed. */
const REMOVED_PREFIX = ".over-";
/**
 * How long the folder of an unknown job is kept after its last change: as long as masters remember
 * ended jobs. Until then a backup may restore the job.
 */
const KEEP_UNKNOWN_MS = 7 * 24 * 3_600_000;
/** The most unclaimed folders that are logged. */
const MAX_LOGGED = 1_000;
/** The most entries of a folder that are checked; one with more is kept. */
const MAX_CHECKED = 10_000;

/**
 * The folders with checkpoints of jobs that have no task on this worker. Several workers may share
 * them. Only the masters know which are still needed.
 */
export class CheckpointFolders {
  readonly #root: string;
  readonly #runs: (jobId: string) => boolean;
  readonly #log: Log;
  readonly #onEnded: (jobId: string) => Promise<void>;
  /** The id of the cluster that this worker serves; empty until its leader has sent it. */
  cluster = "";
  /** Jobs with unclaimed folders that were logged. */
  readonly #logged = new Set<string>();
  /** The last one that was reported. */
  #last = "";
  readonly #removals = new SerialQueue();

  /** `onEnded` is called for each finished job, once its folder is removed. */
  constructor(
    root: string,
    runs: (jobId: string) => boolean,
    log: Log,
    onEnded = async (_jobId: string): Promise<void> => {},
  ) {
    this.#onEnded = onEnded;
    this.#root = root;
    this.#runs = runs;
    this.#log = log;
  }

  /** Claims the job's folder for this cluster, whatever the claim was. */
  async claim(jobId: string): Promise<void> {
    if (this.cluster === "" || !JOB_FOLDER.test(jobId)) return;
    if ((await this.#ownerOf(jobId)) === this.cluster) return;
    try {
      await replaceFileBeneath(this.#root, `${jobId}/${CLAIM_FILE}`, this.cluster);
    } catch (error) {
      // The folder is then kept, whatever happens to its job.
      this.#log.warn({ job: jobId, error: String(error) }, "a checkpoint folder was not claimed");
    }
  }

  /** The cluster that has claimed the job's folder. */
  async #ownerOf(jobId: string): Promise<string | undefined> {
    const path = `${jobId}/${CLAIM_FILE}`;
    const file = await openFileBeneath(this.#root, path).catch(() => undefined);
    // A task can write the file too: if it is longer than an id, its beginning is not an id.
    const bytes = Buffer.alloc(MAX_CLUSTER_BYTES);
    try {
      const read = await file?.read(bytes, 0, MAX_CLUSTER_BYTES, 0).catch(() => undefined);
      return read && bytes.toString("utf8", 0, read.bytesRead);
    } finally {
      await file?.close();
    }
  }

  /** Ids of such jobs, in turn where they are many, once pending removals are done. */
  async next(): Promise<string[]> {
    await this.#removals.idle();
    const names = await readdir(this.#root).catch(() => []);
    // Removals that an earlier process began.
    for (const name of names.filter((each) => each.startsWith(REMOVED_PREFIX))) {
      await removeBeneath(this.#root, name).catch(() => undefined);
    }
    const idle = names.filter((name) => JOB_FOLDER.test(name) && !this.#runs(name)).sort();
    const from = idle.findIndex((name) => name > this.#last);
    const named = idle.slice(Math.max(0, from), Math.max(0, from) + MAX_NAMED);
    this.#last = named.length < MAX_NAMED ? "" : (named.at(-1) ?? "");
    return named;
  }

  /**
   * Removes the folders of finished jobs; those of the second kind only where they are empty. A
   * folder of an unknown job is removed if this cluster claimed it and it is unchanged for a week;
   * an unclaimed one is logged. Does not wait: many large files may take longer than a lease.
   */
  forget(
    jobIds: readonly string[],
    emptyJobIds: readonly string[],
    unknownJobIds: readonly string[],
  ): void {
    const { cluster } = this;
    void this.#removals.run(async () => {
      for (const id of jobIds) {
        await this.#remove(id, async () => {
          await removeBeneath(this.#root, id);
          await this.#onEnded(id);
        });
      }
      for (const id of emptyJobIds) {
        await this.#remove(id, async (folder) => {
          for await (const { name } of await opendir(folder)) if (name !== CLAIM_FILE) return;
          await removeBeneath(this.#root, `${id}/${CLAIM_FILE}`);
          await rmdir(folder);
        });
      }
      for (const id of unknownJobIds) await this.#removeUnknown(id, cluster);
    });
  }

  async #removeUnknown(id: string, cluster: string): Promise<void> {
    if (!JOB_FOLDER.test(id) || cluster === "") return;
    const owner = await this.#ownerOf(id);
    if (owner !== undefined && owner !== cluster) return;
    await this.#remove(id, async (folder) => {
      const idleMs = Date.now() - (await lastChangeMs(folder));
      if (idleMs < KEEP_UNKNOWN_MS) return;
      if (owner === undefined) return this.#reportUnclaimed(folder, id);
      // Renamed at once, so that a new job of that name begins with its own folder.
      const away = join(this.#root, `${REMOVED_PREFIX}${id}`);
      await rename(folder, away);
      await removeBeneath(this.#root, `${REMOVED_PREFIX}${id}`);
      this.#log.info(
        { job: id },
        "checkpoints of a job that the masters have forgotten are removed",
      );
    });
  }

  /** Once for each process: the folder is from before claims existed, or the disk was full. */
  #reportUnclaimed(directory: string, job: string): void {
    if (this.#logged.has(job) || this.#logged.size >= MAX_LOGGED) return;
    this.#logged.add(job);
    const advice = `remove it, or write the cluster's id (${this.cluster}) to its file ${CLAIM_FILE}`;
    this.#log.warn(
      { job, directory, advice },
      "checkpoints of a job that the masters do not know, for a week unchanged and claimed by no cluster, are kept",
    );
  }

  async #remove(id: string, how: (folder: string) => Promise<void>): Promise<void> {
    if (!JOB_FOLDER.test(id) || this.#runs(id)) return;
    try {
      await how(join(this.#root, id));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // The checkpoints of a failed job stay; another worker may have removed the rest.
      if (code === "ENOTEMPTY" || code === "ENOENT" || code === "EEXIST") return;
      this.#log.warn({ job: id, error: String(error) }, "checkpoints could not be removed");
    }
  }
}

/** The latest change of the folder or an entry directly in it; infinite where it has too many. */
async function lastChangeMs(folder: string): Promise<number> {
  let lastMs = (await lstat(folder)).mtimeMs;
  let count = 0;
  for await (const { name } of await opendir(folder, { encoding: "latin1" })) {
    if (++count > MAX_CHECKED) return Number.POSITIVE_INFINITY;
    const path = Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name, "latin1")]);
    lastMs = Math.max(lastMs, (await lstat(path)).mtimeMs);
  }
  return lastMs;
}
