import { createHash, randomUUID } from "node:crypto";
import { lchown, lstat, mkdir, readdir, rename } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import {
  atEntryBeneath,
  type FileBeneath,
  filesBeneath,
  makeDirectoryBeneath,
  openFileBeneath,
  removeBeneath,
} from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import { type ArtifactReplica, CHECKPOINTS } from "../../artifacts/replica.ts";
import { checkpointPath } from "./prune-checkpoints.ts";

/** The prefix of a restore in progress, beside the jobs' folders; abandoned after a day. */
const DRAFT = ".draft-";
const DRAFT_MS = 24 * 3_600_000;
const NAME_CHARS = 32;

/**
 * Second copies of the checkpoints that jobs' tasks have named. Each rank's files are a separate
 * copy, since ranks on several workers may each have a part of a checkpoint.
 */
export class CheckpointCopies {
  readonly #root: string;
  readonly #replica: ArtifactReplica;
  readonly #maxBytes: number;

  /** `root`: of all jobs' checkpoints; `maxBytes`: of one checkpoint. */
  constructor(root: string, replica: ArtifactReplica, maxBytes: number) {
    this.#root = root;
    this.#replica = replica;
    this.#maxBytes = maxBytes;
  }

  /** Copies the files of the name, in place of an earlier copy. */
  async save(jobId: string, rank: number, name: string): Promise<void> {
    const path = checkpointPath(name);
    if (!path) return;
    const folder = join(jobId, dirname(path));
    const files = await this.#filesOf(folder, basename(path));
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    if (bytes > this.#maxBytes) {
      const message = `the checkpoint ${name} has ${bytes} bytes, and ${this.#maxBytes} are copied at most (--artifacts-mib)`;
      throw new AppError("invalid_value", message);
    }
    if (files.length === 0) return;
    await this.#replica.copy({ root: this.#root, folder, files }, copyOf(jobId, path, rank), true);
  }

  async #filesOf(folder: string, name: string): Promise<FileBeneath[]> {
    const path = `${folder}/${name}`;
    const file = await openFileBeneath(this.#root, path).catch(unless("EISDIR"));
    if (file) {
      const { size: bytes } = await file.stat().finally(() => file.close());
      return [{ name, bytes }];
    }
    const files = await filesBeneath(this.#root, path);
    return files.map((each) => ({ ...each, name: `${name}/${each.name}` }));
  }

  /**
   * Restores a checkpoint with the parts of all ranks where it is missing; it appears atomically.
   */
  async restore(jobId: string, name: string): Promise<void> {
    const path = checkpointPath(name);
    if (!path || (await isThere(join(this.#root, jobId, path)))) return;
    const parts = await this.#parts(jobId, path);
    if (parts.length === 0) return;
    await this.#removeOldDrafts();
    const draft = `${DRAFT}${randomUUID()}`;
    const folder = join(this.#root, draft);
    await mkdir(folder, { mode: 0o700 });
    try {
      for (const part of parts) await this.#replica.restore(part, folder);
      await giveToOwner(folder, join(this.#root, jobId));
      await this.#makeParents(jobId, dirname(path));
      await atEntryBeneath(this.#root, `${jobId}/${path}`, (entry) =>
        rename(join(folder, basename(path)), entry),
      );
    } catch (error) {
      // Another task of the job on this worker was first.
      if (!(await isThere(join(this.#root, jobId, path)))) throw error;
    } finally {
      await removeBeneath(this.#root, draft);
    }
  }

  async #makeParents(jobId: string, path: string): Promise<void> {
    if (path === ".") return;
    await makeDirectoryBeneath(this.#root, `${jobId}/${path}`);
    if (process.getuid?.() !== 0) return;
    const { uid, gid } = await lstat(join(this.#root, jobId));
    const segments = path.split("/");
    for (let depth = 1; depth <= segments.length; depth++) {
      const folder = `${jobId}/${segments.slice(0, depth).join("/")}`;
      await atEntryBeneath(this.#root, folder, (entry) => lchown(entry, uid, gid));
    }
  }

  async drop(jobId: string, rank: number, name: string): Promise<void> {
    const path = checkpointPath(name);
    if (path) await this.#replica.remove(copyOf(jobId, path, rank));
  }

  async dropJob(jobId: string): Promise<void> {
    await this.#replica.remove(`${CHECKPOINTS}/${jobId}`);
  }

  async #parts(jobId: string, path: string): Promise<string[]> {
    const job = `${CHECKPOINTS}/${jobId}`;
    const names = await this.#replica.names(job);
    return names
      .filter((name) => name.startsWith(`${digestOf(path)}.`))
      .map((name) => `${job}/${name}`);
  }

  async #removeOldDrafts(): Promise<void> {
    for (const name of await readdir(this.#root)) {
      if (!name.startsWith(DRAFT)) continue;
      const found = await lstat(join(this.#root, name)).catch(() => undefined);
      if (found && Date.now() - found.mtimeMs > DRAFT_MS) await removeBeneath(this.#root, name);
    }
  }
}

/** A valid name in every store, for a path of any length and characters. */
function digestOf(path: string): string {
  return createHash("sha256").update(path).digest("hex").slice(0, NAME_CHARS);
}

function copyOf(jobId: string, path: string, rank: number): string {
  return `${CHECKPOINTS}/${jobId}/${digestOf(path)}.${rank}`;
}

/**
 * The job's user must read its checkpoints; in a folder that is still this worker's it receives
 * them with the rest.
 */
async function giveToOwner(folder: string, jobFolder: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await lstat(jobFolder);
  for (const each of await readdir(folder, { recursive: true, withFileTypes: true })) {
    await lchown(join(each.parentPath, each.name), uid, gid);
  }
}

function unless(code: string): (error: NodeJS.ErrnoException) => undefined {
  return (error) => {
    if (error.code !== code) throw error;
    return undefined;
  };
}

function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
