import { randomBytes } from "node:crypto";
import { link, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import { isSameProcess, processStart } from "@heddle/base/process-alive";
import { LockSocket } from "./lock-socket.ts";

/** Keeps a data directory to one process; released by `close`, or by the process's death. */
export interface DirectoryLock {
  /** `movedTo` is where the directory is now, if it was renamed meanwhile. */
  close(movedTo?: string): Promise<void>;
}

interface Owner {
  readonly pid: number;
  /**
   * The kernel's start time of the process; distinguishes it from a later one with the same pid.
   */
  readonly started: string;
}

const ATTEMPTS = 4;
const MAX_PAUSE_MS = 100;

/**
 * Takes the directory's lock. Throws `conflict`, naming the pid, where a live process holds it, in
 * this container or another one of this machine.
 */
export async function lockDirectory(directory: string): Promise<DirectoryLock> {
  const path = join(directory, "lock");
  const nonce = randomBytes(8).toString("hex");
  const socket = await announce(directory, nonce);
  const own = `${path}.${nonce}`;
  try {
    const started = processStart(process.pid) ?? "";
    await writeDurably(own, JSON.stringify({ pid: process.pid, started }));
    await take(path, own, directory);
  } catch (error) {
    await socket?.close(directory);
    throw error;
  } finally {
    await rm(own, { force: true });
  }
  return {
    close: async (movedTo = directory) => {
      await rm(join(movedTo, "lock"), { force: true });
      await socket?.close(movedTo);
    },
  };
}

/**
 * Each shows itself first and checks the others then, so that of two at least one sees the other.
 * Where both do, both step back, and try again after pauses of different lengths.
 */
async function announce(directory: string, nonce: string): Promise<LockSocket | undefined> {
  for (let attempt = 1; ; attempt++) {
    const socket = await LockSocket.listen(directory, `${nonce}${attempt}`);
    const [pid] = (await socket?.others(directory)) ?? [];
    if (pid === undefined) return socket;
    await socket?.close(directory);
    const owner = parseOwner(await readFile(join(directory, "lock"), "utf8").catch(() => ""));
    if (owner && isSameProcess(owner.pid, owner.started))
      throw inUse(directory, `the process ${owner.pid}`);
    if (attempt === ATTEMPTS) {
      throw inUse(directory, `a process of another container, where its id is ${pid}`);
    }
    await delay(Math.random() * MAX_PAUSE_MS);
  }
}

function inUse(directory: string, owner: string): AppError {
  const message = `${directory} is in use by ${owner}. Stop it, or give another --data.`;
  return new AppError("conflict", message);
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
    if (owner && isSameProcess(owner.pid, owner.started)) {
      throw inUse(directory, `the process ${owner.pid}`);
    }
    await removeStale(path, own, text);
  }
  throw new AppError("conflict", `${directory}/lock is being taken by another process.`);
}

/** Moves the dead owner's lock aside; a lock that someone took meanwhile is put back. */
async function removeStale(path: string, own: string, staleText: string): Promise<void> {
  const aside = `${own}.stale`;
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

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, "w", 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
