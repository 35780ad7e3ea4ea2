import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { lstat, lutimes, mkdir, open, readdir, rename, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import {
  atEntryBeneath,
  type FileBeneath,
  filesBeneath,
  makeDirectoryBeneath,
  openFileBeneath,
  removeBeneath,
  replaceFileBeneath,
} from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import type { Artifact } from "@heddle/contracts/generated/heddle/v1/Artifact";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import { ARTIFACT_PIECE_BYTES } from "@heddle/rpc/artifact-stream";
import { openedFile } from "./opened-file.ts";
import type { ArtifactReplica, OpenedFile } from "./replica.ts";

/** The most files of one task; their list is part of the masters' log. */
const MAX_FILES = 256;
const MAX_NAME_LENGTH = 256;
/** Bytes of one task's files that are no blocks of a disk: holes, and what a file system compresses away. */
const MAX_HOLE_BYTES = 2 ** 30;
/** The unit of `stat`'s blocks, whatever the file system's are. */
const BLOCK_BYTES = 512;
/** A path of plain names without `.` and `..`. */
const NAME_FORM = /^(?!.*(?:^|\/)\.{1,2}(?:\/|$))[\w.@+= ()-]+(?:\/[\w.@+= ()-]+)*$/;
/**
 * In a task's folder: the digests of pieces, by the digest of the file's name. No file of a task
 * can have such a name.
 */
const DIGEST_FOLDER = "~digests";

export interface ArtifactStoreOptions {
  /** On the file system of the tasks' directories. */
  readonly root: string;
  /** The bound of all artifacts of finished tasks; the oldest are removed first. */
  readonly maxBytes: number;
  readonly maxAgeMs: number;
  /** A second place, which outlives this worker. */
  readonly replica?: ArtifactReplica | undefined;
  /** Called for a copy that failed; each `prune` retries it. */
  readonly onUncopied?: ((error: unknown) => void) | undefined;
}

/**
 * The artifacts of tasks on this worker's disk, as `JOB/ATTEMPT.RANK/NAME`, and their retention.
 */
export class ArtifactStore {
  readonly #options: ArtifactStoreOptions;

  constructor(options: ArtifactStoreOptions) {
    this.#options = options;
  }

  /**
   * Takes over the folder below `root` with the files of a successful task, and resolves with them
   * once they are durable. The call is idempotent. No link is followed, even one that replaces a
   * folder meanwhile. Throws an AppError with advice.
   */
  async keep(id: TaskId__Output, root: string, folder: string): Promise<Artifact[]> {
    const kept = this.#nameOf(id);
    if (!(await exists(join(this.#options.root, kept)))) {
      const files = await filesBeneath(root, folder).catch(refuseLink);
      if (files.length === 0) return [];
      this.#check(files);
      await this.#take(root, folder, kept);
    }
    try {
      const artifacts = await this.#describeAll(kept);
      await this.prune();
      await this.#copy(kept);
      return artifacts;
    } catch (error) {
      await removeBeneath(this.#options.root, kept);
      return refuseLink(error);
    }
  }

  async #take(root: string, folder: string, kept: string): Promise<void> {
    const store = this.#options.root;
    await mkdir(store, { recursive: true, mode: 0o700 });
    await makeDirectoryBeneath(store, dirname(kept));
    await atEntryBeneath(root, folder, (from) =>
      atEntryBeneath(store, kept, async (to) => {
        await rename(from, to);
        // Its age counts from now, not from the task's first write.
        await lutimes(to, new Date(), new Date());
        await syncFolder(dirname(to));
      }),
    );
  }

  /** Removes all that the task has left, and its copy. */
  async drop(id: TaskId__Output): Promise<void> {
    const name = this.#nameOf(id);
    const { root, replica, onUncopied = () => undefined } = this.#options;
    await removeBeneath(root, name);
    await rmdir(join(root, dirname(name))).catch(() => {});
    await replica?.remove(name).catch(onUncopied);
  }

  /** A file to read, which the caller closes. Throws `not_found`. */
  open(id: TaskId__Output, name: string): Promise<OpenedFile> {
    return this.#open(id, name, name);
  }

  /**
   * The digests of its pieces, one after the other; throws `not_found`, also where it is one piece.
   */
  openDigests(id: TaskId__Output, name: string): Promise<OpenedFile> {
    return this.#open(id, name, digestPath(name));
  }

  async #open(id: TaskId__Output, name: string, path: string): Promise<OpenedFile> {
    const file = isName(name) ? await this.#find(this.#nameOf(id), path) : undefined;
    if (file) return file;
    const message = `this worker has no artifact ${name} of job ${id.jobId}: it may have expired`;
    throw new AppError("not_found", message);
  }

  async #find(kept: string, name: string): Promise<OpenedFile | undefined> {
    const { root, replica } = this.#options;
    const own = await openFileBeneath(root, `${kept}/${name}`).catch(() => undefined);
    return own ? openedFile(own) : await replica?.open(kept, name);
  }

  async #copy(name: string): Promise<void> {
    const { root, replica, onUncopied = () => undefined } = this.#options;
    if (!replica) return;
    try {
      const files = await filesBeneath(root, name);
      await replica.copy({ root, folder: name, files }, name);
    } catch (error) {
      onUncopied(error);
    }
  }

  /** Copies folders without a copy, and removes copies that are too old. */
  async replicate(): Promise<void> {
    if (!this.#options.replica) return;
    for (const { name } of await this.#kept()) await this.#copy(name);
    await this.#options.replica.prune();
  }

  /** Removes folders that are too old, and the oldest beyond the bound. */
  async prune(): Promise<void> {
    const { maxBytes, maxAgeMs } = this.#options;
    const kept = await this.#kept();
    let bytes = kept.reduce((sum, folder) => sum + folder.bytes, 0);
    for (const folder of kept.sort((a, b) => a.atMs - b.atMs)) {
      if (bytes <= maxBytes && Date.now() - folder.atMs <= maxAgeMs) return;
      bytes -= folder.bytes;
      await removeBeneath(this.#options.root, folder.name);
      // `rmdir` removes empty folders only.
      await rmdir(join(this.#options.root, dirname(folder.name))).catch(() => {});
    }
  }

  #check(files: readonly FileBeneath[]): void {
    if (files.length > MAX_FILES) {
      throw refusal(
        `it has ${files.length} artifacts, more than the limit of ${MAX_FILES}: pack them into archives`,
      );
    }
    const wrong = files.find(({ name }) => !isName(name));
    if (wrong !== undefined) {
      const form = `1 to ${MAX_NAME_LENGTH} letters, digits, spaces and _.@+=()-`;
      throw refusal(`${JSON.stringify(wrong.name)} is not a valid name: use ${form}`);
    }
    const { maxBytes } = this.#options;
    const bytes = sizeOf(files);
    if (bytes > maxBytes) {
      throw refusal(
        `they have ${bytes} bytes, and this worker keeps ${maxBytes} (--artifacts-mib)`,
      );
    }
  }

  async #kept() {
    const { root } = this.#options;
    const found: { name: string; bytes: number; atMs: number }[] = [];
    for (const job of await readdir(root).catch(() => [])) {
      for (const task of await readdir(join(root, job)).catch(() => [])) {
        const name = `${job}/${task}`;
        const files = await filesBeneath(root, name).catch(() => undefined);
        const atMs = (await lstat(join(root, name)).catch(() => undefined))?.mtimeMs;
        if (files && atMs !== undefined) found.push({ name, bytes: sizeOf(files), atMs });
      }
    }
    return found;
  }

  /** A file's holes cost a task nothing and its worker the time to hash them, so they have a bound. */
  async #describeAll(kept: string): Promise<Artifact[]> {
    const found = await filesBeneath(this.#options.root, kept);
    const files = found.filter((file) => !file.name.startsWith(`${DIGEST_FOLDER}/`));
    // A process of the task's user may have added to the folder while it was taken.
    this.#check(files);
    const artifacts: Artifact[] = [];
    let holeBytes = 0;
    for (const { name } of files) {
      const file = await openFileBeneath(this.#options.root, `${kept}/${name}`);
      try {
        // Some file systems allocate late, and know the blocks only after a sync.
        await file.sync();
        const { size, blocks } = await file.stat();
        holeBytes += Math.max(0, size - blocks * BLOCK_BYTES);
        if (holeBytes > MAX_HOLE_BYTES) throw tooSparse(name, size, blocks * BLOCK_BYTES);
        artifacts.push(await this.#describe(kept, name, file, size));
      } finally {
        await file.close();
      }
    }
    return artifacts;
  }

  /** Reads the file once, so that its description matches the disk. */
  async #describe(
    folder: string,
    name: string,
    file: FileHandle,
    bytes: number,
  ): Promise<Artifact> {
    const { root } = this.#options;
    const hash = createHash("sha256");
    const digests: Buffer[] = [];
    let left = bytes;
    for await (const piece of piecesOf(file)) {
      left -= piece.byteLength;
      if (left < 0) break;
      hash.update(piece);
      digests.push(createHash("sha256").update(piece).digest());
    }
    if (left !== 0) throw refusal(`${name} was written to while it was kept`);
    const artifact = { name, bytes, sha256: hash.digest("hex") };
    if (digests.length < 2) return artifact;
    const list = Buffer.concat(digests);
    await makeDirectoryBeneath(root, `${folder}/${DIGEST_FOLDER}`);
    await replaceFileBeneath(root, `${folder}/${digestPath(name)}`, list);
    return { ...artifact, pieces: createHash("sha256").update(list).digest("hex") };
  }

  /** A task's folder, relative to the root. */
  #nameOf({ jobId, attempt, rank }: TaskId__Output): string {
    return `${jobId}/${attempt}.${rank}`;
  }
}

async function* piecesOf(file: FileHandle): AsyncGenerator<Buffer, void> {
  const piece = Buffer.alloc(ARTIFACT_PIECE_BYTES);
  for (let at = 0; ; at += piece.byteLength) {
    let length = 0;
    for (let read = 1; read > 0 && length < piece.byteLength; length += read) {
      read = (await file.read(piece, length, piece.byteLength - length, at + length)).bytesRead;
    }
    if (length > 0) yield piece.subarray(0, length);
    if (length < piece.byteLength) return;
  }
}

function digestPath(name: string): string {
  return `${DIGEST_FOLDER}/${createHash("sha256").update(name).digest("hex")}`;
}

function refusal(what: string): AppError {
  return new AppError("invalid_value", `its artifacts: ${what}`);
}

function tooSparse(name: string, bytes: number, allocated: number): AppError {
  return refusal(
    `${name} has ${bytes} bytes, of which ${allocated} are on the disk, and at most ${MAX_HOLE_BYTES} bytes of a task's files may be missing there: write it without holes, or pack it`,
  );
}

/** A clear error where a link or another object is in the place of a folder or file. */
function refuseLink(cause: unknown): never {
  const { code = "", message } = cause as NodeJS.ErrnoException;
  if (code !== "ENOTDIR" && code !== "ELOOP" && code !== "ENOENT") throw cause;
  throw new AppError(
    "invalid_value",
    `its artifacts: their folder, or something in it, was removed or replaced by a link or a file: ${message}`,
    { cause },
  );
}

function isName(name: string): boolean {
  return name.length <= MAX_NAME_LENGTH && NAME_FORM.test(name);
}

function sizeOf(files: readonly FileBeneath[]): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
