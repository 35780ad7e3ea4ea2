import { createHash } from "node:crypto";
import {
  type FileHandle,
  mkdir,
  open,
  readdir,
  rename,
  rm,
  rmdir,
  stat,
  utimes,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { Artifact } from "@heddle/contracts/generated/heddle/v1/Artifact";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";

/** Files that one task may leave; their list goes into the masters' log. */
const maxFiles = 256;
const maxNameLength = 256;
/** A path of plain names, none of them hidden in the sense of `..`. */
const nameForm = /^(?!.*(?:^|\/)\.{1,2}(?:\/|$))[\w.@+= ()-]+(?:\/[\w.@+= ()-]+)*$/;
const hashChunkBytes = 1024 * 1024;

export interface ArtifactStoreOptions {
  /** On the file system of the tasks' directories. */
  readonly root: string;
  /** What tasks that ended may leave here together; the oldest go first. */
  readonly maxBytes: number;
  readonly maxAgeMs: number;
}

/** What tasks have left on this worker's disk, as `JOB/ATTEMPT.RANK/NAME`, and how long it stays. */
export class ArtifactStore {
  readonly #options: ArtifactStoreOptions;

  constructor(options: ArtifactStoreOptions) {
    this.#options = options;
  }

  /**
   * Takes over the folder in which a task that has ended well left its files, and resolves with them
   * once they are on the disk. Asked again it says the same. Throws an AppError that tells what
   * must be otherwise.
   */
  async keep(id: TaskId__Output, folder: string): Promise<Artifact[]> {
    const kept = this.#folderOf(id);
    if (!(await exists(kept))) {
      const names = await fileNames(folder);
      if (names.length === 0) return [];
      await this.#check(folder, names);
      await mkdir(dirname(kept), { recursive: true, mode: 0o700 });
      // Its age counts from now, not from when the task began to write.
      await utimes(folder, new Date(), new Date());
      await rename(folder, kept);
      await syncFolder(dirname(kept));
    }
    const artifacts: Artifact[] = [];
    for (const name of (await fileNames(kept)).sort()) {
      artifacts.push(await describe(kept, name));
    }
    await this.prune();
    return artifacts;
  }

  /** A file to read, whose handle is the caller's to close. Throws `not_found`. */
  async open(id: TaskId__Output, name: string): Promise<{ file: FileHandle; bytes: number }> {
    const path = isName(name) ? join(this.#folderOf(id), name) : undefined;
    const file = path && (await open(path, "r").catch(() => undefined));
    if (!file) {
      const message = `this worker has no artifact ${name} of job ${id.jobId}: it may be older than it keeps them`;
      throw new AppError("not_found", message);
    }
    return { file, bytes: (await file.stat()).size };
  }

  /** Removes what is too old, and the oldest of what is too much. */
  async prune(): Promise<void> {
    const { maxBytes, maxAgeMs } = this.#options;
    const kept = await this.#kept();
    let bytes = kept.reduce((sum, folder) => sum + folder.bytes, 0);
    for (const folder of kept.sort((a, b) => a.atMs - b.atMs)) {
      if (bytes <= maxBytes && Date.now() - folder.atMs <= maxAgeMs) return;
      bytes -= folder.bytes;
      await rm(folder.path, { recursive: true, force: true });
      // Only an empty one can be removed so.
      await rmdir(dirname(folder.path)).catch(() => {});
    }
  }

  async #check(folder: string, names: readonly string[]): Promise<void> {
    const refuse = (what: string) => new AppError("invalid_value", `its artifacts: ${what}`);
    if (names.length > maxFiles) {
      throw refuse(`it left ${names.length} files, and at most ${maxFiles} are kept: pack them`);
    }
    const wrong = names.find((name) => !isName(name));
    if (wrong !== undefined) {
      const form = `1 to ${maxNameLength} letters, digits, spaces and _.@+=()-`;
      throw refuse(`${JSON.stringify(wrong)} is no name for one: use ${form}`);
    }
    const { maxBytes } = this.#options;
    const bytes = await sizeOf(folder, names);
    if (bytes > maxBytes) {
      throw refuse(`they have ${bytes} bytes, and this worker keeps ${maxBytes} (--artifacts-mib)`);
    }
  }

  async #kept() {
    const found: { path: string; bytes: number; atMs: number }[] = [];
    for (const job of await readdir(this.#options.root).catch(() => [])) {
      for (const task of await readdir(join(this.#options.root, job)).catch(() => [])) {
        const path = join(this.#options.root, job, task);
        const atMs = (await stat(path).catch(() => undefined))?.mtimeMs;
        if (atMs === undefined) continue;
        found.push({ path, bytes: await sizeOf(path, await fileNames(path)), atMs });
      }
    }
    return found;
  }

  #folderOf({ jobId, attempt, rank }: TaskId__Output): string {
    return join(this.#options.root, jobId, `${attempt}.${rank}`);
  }
}

function isName(name: string): boolean {
  return name.length <= maxNameLength && nameForm.test(name);
}

/** The regular files below the folder, by their paths from it; links and the like do not count. */
async function fileNames(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1));
}

async function sizeOf(folder: string, names: readonly string[]): Promise<number> {
  let bytes = 0;
  for (const name of names) {
    bytes += (await stat(join(folder, name)).catch(() => ({ size: 0 }))).size;
  }
  return bytes;
}

/** Reads the file once, so that what is told of it is what is on the disk. */
async function describe(folder: string, name: string): Promise<Artifact> {
  const file = await open(join(folder, name), "r");
  try {
    const hash = createHash("sha256");
    const chunk = Buffer.alloc(hashChunkBytes);
    let bytes = 0;
    for (;;) {
      const { bytesRead } = await file.read(chunk, 0, hashChunkBytes, bytes);
      if (bytesRead === 0) break;
      hash.update(chunk.subarray(0, bytesRead));
      bytes += bytesRead;
    }
    await file.sync();
    return { name, bytes, sha256: hash.digest("hex") };
  } finally {
    await file.close();
  }
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
  return stat(path).then(
    () => true,
    () => false,
  );
}
