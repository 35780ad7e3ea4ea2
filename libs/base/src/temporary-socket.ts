import { randomUUID } from "node:crypto";
import { readdir, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isProcessAlive } from "./process-alive.ts";

const NAME = /^heddle-(?:ps|data)-(\d+)-[\w-]+\.sock$/;
/** The maximum number checked in one call, which bounds its duration. */
const MAX_SOCKETS = 4_096;

/**
 * A socket path that is unique to this process. It is short, since a socket's path has at most 107
 * bytes, which a data directory may exceed.
 */
export function ownSocketPath(use: "ps" | "data", folder = tmpdir()): string {
  return join(folder, `heddle-${use}-${process.pid}-${randomUUID().slice(0, 8)}.sock`);
}

/** Removes the sockets that killed processes left behind; returns their number. */
export async function removeStaleSockets(folder = tmpdir()): Promise<number> {
  const names = await readdir(folder).catch(() => []);
  let removed = 0;
  for (const name of names.filter((each) => NAME.test(each)).slice(0, MAX_SOCKETS)) {
    if (await isStale(join(folder, name), Number(NAME.exec(name)?.[1]))) removed++;
  }
  return removed;
}

/** Whether it was stale and has been removed. */
async function isStale(path: string, pid: number): Promise<boolean> {
  if (isProcessAlive(pid)) return false;
  try {
    // Its process may be of another container, whose ids mean nothing here.
    if (!(await isRefused(path))) return false;
    await rm(path);
    return true;
  } catch {
    return false; // Gone meanwhile, or another user's, which is theirs to remove.
  }
}

/** Whether no process listens at the socket. */
function isRefused(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
}
