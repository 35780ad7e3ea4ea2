import { randomUUID } from "node:crypto";
import { open, readFile, rm, stat, utimes } from "node:fs/promises";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { isProcessAlive } from "@heddle/base/process-alive";

interface Owner {
  readonly host: string;
  readonly pid: number;
  readonly token: string;
}

const POLL_MS = 200;
const HEARTBEAT_MS = 2_000;
/** A lock whose owner has not touched it for this long is dead: the owner's machine is gone. */
const STALE_MS = 30_000;

/**
 * Runs `work` while holding the lock file `path`, so that of several processes one works and the
 * others wait. `onWait` is called at every poll while another holds it. The lock of a process that
 * died is taken over: at once on the same machine, after 30 s from another one. What is guarded
 * must stay right even if two hold it for a moment, as takeovers may cross.
 */
export async function withFileLock<T>(
  path: string,
  signal: AbortSignal,
  onWait: () => Promise<void>,
  work: () => Promise<T>,
): Promise<T> {
  const owner: Owner = { host: hostname(), pid: process.pid, token: randomUUID() };
  while (!(await tryAcquire(path, owner))) {
    if (await isStale(path)) {
      await breakLock(path);
      continue;
    }
    await onWait();
    await sleep(POLL_MS, undefined, { signal });
  }
  const heartbeat = setInterval(() => {
    const now = new Date();
    // A lock that was removed by hand needs no heartbeat.
    utimes(path, now, now).catch(() => undefined);
  }, HEARTBEAT_MS);
  try {
    return await work();
  } finally {
    clearInterval(heartbeat);
    if ((await readOwner(path))?.token === owner.token) await rm(path, { force: true });
  }
}

async function tryAcquire(path: string, owner: Owner): Promise<boolean> {
  const file = await open(path, "wx").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "EEXIST") return undefined;
    throw error;
  });
  if (!file) return false;
  try {
    await file.writeFile(JSON.stringify(owner));
    return true;
  } catch (error) {
    // On a full disk: a lock without an owner would hold up others until it is stale.
    await rm(path, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

async function isStale(path: string): Promise<boolean> {
  try {
    const { mtimeMs } = await stat(path);
    if (Date.now() - mtimeMs > STALE_MS) return true;
    const owner = await readOwner(path);
    return owner !== undefined && owner.host === hostname() && !isProcessAlive(owner.pid);
  } catch {
    // It was released meanwhile.
    return false;
  }
}

/** One process at a time breaks a lock, and checks it again first, so that no fresh lock is broken. */
async function breakLock(path: string): Promise<void> {
  const guard = `${path}.break`;
  const owner: Owner = { host: hostname(), pid: process.pid, token: randomUUID() };
  if (await tryAcquire(guard, owner)) {
    if (await isStale(path)) await rm(path, { force: true });
    await rm(guard, { force: true });
  } else if (await isStale(guard)) {
    await rm(guard, { force: true });
  } else {
    await sleep(POLL_MS);
  }
}

async function readOwner(path: string): Promise<Owner | undefined> {
  try {
    return JSON.parse(await readFile(path, "utf8")) as Owner;
  } catch {
    // Released meanwhile, or not yet written in full.
    return undefined;
  }
}
