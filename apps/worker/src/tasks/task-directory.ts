import {
  constants,
  type FileHandle,
  mkdir,
  open,
  readdir,
  rename,
  rm,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";

export const STREAMS = ["stdout", "stderr"] as const;
export type StreamName = (typeof STREAMS)[number];

/** Where one task keeps what it has on this worker's disk. */
export class TaskDirectory {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static of(root: string, { jobId, attempt, rank, incarnation }: TaskId__Output): TaskDirectory {
    // The files of the task that this one replaces, on the same worker, may still be read from.
    const life = incarnation ? `.${incarnation}` : "";
    return new TaskDirectory(join(root, jobId, `${attempt}.${rank}${life}`));
  }

  /** The directories of all tasks under `root` that have a record. */
  static async all(root: string): Promise<TaskDirectory[]> {
    const found: TaskDirectory[] = [];
    for (const job of await names(root)) {
      for (const task of await names(join(root, job))) {
        if (/^\d+\.\d+(\.\d+)?$/.test(task)) found.push(new TaskDirectory(join(root, job, task)));
      }
    }
    return found;
  }

  get work(): string {
    return join(this.path, "work");
  }

  /** What the task leaves, until it has ended. */
  get artifacts(): string {
    return join(this.path, "artifacts");
  }

  get progress(): string {
    return join(this.path, "progress.jsonl");
  }

  /** The hyperparameters of a program that comes with an algorithm, as JSON. */
  get config(): string {
    return join(this.path, "config.json");
  }

  stream(name: StreamName): string {
    return join(this.path, "logs", name);
  }

  /** Makes the directories of a task that begins. */
  async create(): Promise<void> {
    await mkdir(this.work, { recursive: true, mode: 0o700 });
    await mkdir(this.artifacts, { recursive: true, mode: 0o700 });
    await mkdir(join(this.path, "logs"), { recursive: true, mode: 0o700 });
  }

  async writeConfig(json: string): Promise<void> {
    await writeFile(this.config, `${json}\n`, { mode: 0o600 });
  }

  async readRecord(): Promise<unknown> {
    return readJson(join(this.path, "task.json"));
  }

  async writeRecord(record: unknown): Promise<void> {
    await writeJson(join(this.path, "task.json"), record);
  }

  /** Removes what only the program needed; its logs stay. */
  async removeWork(): Promise<void> {
    await rm(this.work, { recursive: true, force: true });
    await rm(this.artifacts, { recursive: true, force: true });
  }

  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

/** Far above what is written here; a task may write more where it can write too. */
const MAX_JSON_BYTES = 16 * 2 ** 20;

/** The parsed file, or undefined where it is missing, torn, too large, or a pipe. */
export async function readJson(path: string): Promise<unknown> {
  const file = await openToRead(path);
  try {
    const size = (await file?.stat())?.size ?? 0;
    return file && size <= MAX_JSON_BYTES ? JSON.parse(await file.readFile("utf8")) : undefined;
  } catch {
    return undefined;
  } finally {
    await file?.close();
  }
}

/**
 * Undefined where there is nothing to open. A pipe that a task has put in the file's place holds up none
 * of the few threads by which this process reads its files.
 */
export function openToRead(path: string): Promise<FileHandle | undefined> {
  return open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined);
}

/** Writes the file whole or not at all; it is on disk when this resolves. */
export async function writeJson(path: string, value: unknown): Promise<void> {
  // A task may have put a link in the draft's place where it can write too: it is not written through.
  await rm(`${path}.new`, { force: true });
  const file = await open(`${path}.new`, "wx", 0o600);
  try {
    await file.writeFile(JSON.stringify(value));
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
}

async function names(folder: string): Promise<string[]> {
  return readdir(folder).catch(() => []);
}
