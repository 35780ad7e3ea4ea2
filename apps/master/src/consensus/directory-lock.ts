import { link, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";

/** Keeps a data directory to one process; released by `close`, or by the process's death. */
export interface DirectoryLock {
  close(): Promise<void>;
}

interface Owner {
  readonly pid: number;
  /** The kernel's start time of the process, which tells it from a later one with the same pid. */
  readonly started: string;
}

/** Takes the directory's lock. Throws `conflict`, naming the pid, where a live process holds it. */
export async function lockDirectory(directory: string): Promise<DirectoryLock> {
  const path = join(directory, "lock");
  const own = `${path}.${process.pid}`;
  await writeDurably(
    own,
    JSON.stringify({ pid: process.pid, started: await startOf(process.pid) }),
  );
  try {
    await take(path, own, directory);
  } finally {
    await rm(own, { force: true });
  }
  return { close: () => rm(path, { force: true }) };
}

/** A link is made whole or not at all, so that no one ever reads a lock without its owner. */
async function take(path: string, own: string, directory: string): Promise<void> {
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      return await link(own, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    const text = await readFile(path, "utf8").catch(() => "");
    const owner = parseOwner(text);
    if (owner && (await isAlive(owner))) {
      const message = `${directory} is in use by the process ${owner.pid}. Stop it, or give another --data.`;
      throw new AppError("conflict", message);
    }
    await removeStale(path, text);
  }
  throw new AppError("conflict", `${directory}/lock is being taken by another process.`);
}

/** Moves the dead owner's lock aside; a lock that someone took meanwhile is put back. */
async function removeStale(path: string, staleText: string): Promise<void> {
  const aside = `${path}.stale.${process.pid}`;
  try {
    await rename(path, aside);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
    throw error;
  }
  if ((await readFile(aside, "utf8")) !== staleText) await link(aside, path).catch(() => undefined);
  await rm(aside, { force: true });
}

function parseOwner(text: string): Owner | undefined {
  try {
    const { pid, started } = JSON.parse(text) as Owner;
    return Number.isSafeInteger(pid) ? { pid, started: String(started) } : undefined;
  } catch {
    return undefined;
  }
}

async function isAlive({ pid, started }: Owner): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  return (await startOf(pid)) === started;
}

/** Field 22 of /proc/PID/stat; empty on systems without /proc, where the pid alone must do. */
async function startOf(pid: number): Promise<string> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, "w", 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
