import { randomUUID } from "node:crypto";
import { type FileHandle, mkdir, readdir, rename, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import {
  atEntryBeneath,
  makeDirectoryBeneath,
  openFileBeneath,
  readFileBeneath,
  removeBeneath,
  replaceFileBeneath,
} from "@heddle/base/beneath";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";

/** What a program writes. */
export const OUTPUT_STREAMS = ["stdout", "stderr"] as const;
/** All that is shipped: `metrics` is what its worker has recorded of its progress. */
export const TASK_STREAMS = [...OUTPUT_STREAMS, "metrics"] as const;
export type StreamName = (typeof TASK_STREAMS)[number];

/** The prefix of a directory that is being removed. */
const REMOVED_PREFIX = ".over-";

/**
 * One task's directory on this worker's disk. The task may write to it, so this worker follows no
 * link below the root.
 */
export class TaskDirectory {
  /** The directory of all tasks. */
  readonly root: string;
  readonly path: string;
  /** Relative to the root. */
  readonly name: string;

  private constructor(root: string, name: string) {
    this.root = root;
    this.path = join(root, name);
    this.name = name;
  }

  static of(root: string, { jobId, attempt, rank, incarnation }: TaskId__Output): TaskDirectory {
    // The files of the replaced task, on the same worker, may still be read.
    const life = incarnation ? `.${incarnation}` : "";
    return new TaskDirectory(root, `${jobId}/${attempt}.${rank}${life}`);
  }

  /** The directories of all tasks under `root` that have a record. */
  static async all(root: string): Promise<TaskDirectory[]> {
    const found: TaskDirectory[] = [];
    for (const job of await names(root)) {
      for (const task of await names(join(root, job))) {
        if (/^\d+\.\d+(\.\d+)?$/.test(task)) found.push(new TaskDirectory(root, `${job}/${task}`));
      }
    }
    return found;
  }

  get work(): string {
    return join(this.path, "work");
  }

  /** Its inputs, in the folder that its program begins in. */
  get inputs(): string {
    return join(this.work, "inputs");
  }

  /** The task's artifacts, until it has ended. */
  get artifacts(): string {
    return join(this.path, "artifacts");
  }

  get progress(): string {
    return join(this.path, "progress.jsonl");
  }

  /** The hyperparameters of a program with an algorithm, as JSON. */
  get config(): string {
    return join(this.path, "config.json");
  }

  stream(name: StreamName): string {
    return join(this.path, "logs", name);
  }

  /** Makes the directories of a new task. */
  async create(): Promise<void> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    for (const name of ["work", "artifacts", "logs"]) {
      // The removal of another task of the job may just have removed the job's folder.
      const make = () => makeDirectoryBeneath(this.root, this.#in(name));
      await make().catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "ENOENT") throw error;
        return make();
      });
    }
  }

  async writeConfig(json: string): Promise<void> {
    await replaceFileBeneath(this.root, this.#in("config.json"), `${json}\n`);
  }

  async readRecord(): Promise<unknown> {
    return readJson(this.root, this.#in("task.json"));
  }

  async writeRecord(record: unknown): Promise<void> {
    await writeJson(this.root, this.#in("task.json"), record);
  }

  /** Removes what only the program needed; its logs stay. */
  async removeWork(): Promise<void> {
    await removeBeneath(this.root, this.#in("work"));
    await removeBeneath(this.root, this.#in("artifacts"));
  }

  /** Resolves when it is renamed: the removal of a task's files may take long. */
  async remove(onFault: (error: unknown) => void): Promise<void> {
    const over = `${REMOVED_PREFIX}${randomUUID()}`;
    try {
      await atEntryBeneath(this.root, this.name, (entry) => rename(entry, join(this.root, over)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      throw error;
    }
    await removeIfEmpty(dirname(this.path));
    removeBeneath(this.root, over).catch(onFault);
  }

  /** Continues removals that an earlier process began, and removes the folders of jobs without tasks. */
  static async removeRest(root: string): Promise<void> {
    for (const name of await names(root)) {
      if (name.startsWith(REMOVED_PREFIX)) await removeBeneath(root, name);
      else await removeIfEmpty(join(root, name));
    }
  }

  /** The artifacts' path, relative to the root. */
  get artifactsName(): string {
    return this.#in("artifacts");
  }

  get progressName(): string {
    return this.#in("progress.jsonl");
  }

  #in(name: string): string {
    return `${this.name}/${name}`;
  }
}

/** Far above what is written here; a task with write access may write more. */
const MAX_JSON_BYTES = 16 * 2 ** 20;

/** The parsed file, or undefined where it is missing, torn, too large, or a pipe. */
export async function readJson(
  root: string,
  path: string,
  maxBytes = MAX_JSON_BYTES,
): Promise<unknown> {
  try {
    const bytes = await readFileBeneath(root, path, maxBytes);
    return bytes && JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}

/**
 * Undefined where there is no file, a link on the way to it, or a pipe; rejects for a directory.
 */
export function openToRead(root: string, path: string): Promise<FileHandle | undefined> {
  return openFileBeneath(root, path).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === "EISDIR") throw error;
    return undefined;
  });
}

/** Writes the file atomically; it is durable when this resolves. */
export function writeJson(root: string, path: string, value: unknown): Promise<void> {
  return replaceFileBeneath(root, path, JSON.stringify(value));
}

/** Leaves what is not empty, or no directory. */
async function removeIfEmpty(folder: string): Promise<void> {
  await rmdir(folder).catch(() => undefined);
}

async function names(folder: string): Promise<string[]> {
  return readdir(folder).catch(() => []);
}
