import { readdir, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const NAME = /^heddle-ps-(\d+)-\d+\.sock$/;
/** How many are looked at in one start, so that it never waits long. */
const MAX_SOCKETS = 4_096;

/** Short, since a socket's path has at most 107 bytes, which a data directory may exceed. */
export function shardSocketPath(number: number): string {
  return join(tmpdir(), `heddle-ps-${process.pid}-${number}.sock`);
}

/** Removes the sockets of parameter servers that were killed, and could not; gives how many. */
export async function removeStaleSockets(folder = tmpdir()): Promise<number> {
  const names = await readdir(folder).catch(() => []);
  let removed = 0;
  for (const name of names.filter((each) => NAME.test(each)).slice(0, MAX_SOCKETS)) {
    if (isAlive(Number(NAME.exec(name)?.[1]))) continue;
    const path = join(folder, name);
    // Its process may be one of another container, whose ids mean nothing here.
    if (!(await isRefused(path))) continue;
    try {
      await rm(path, { force: true });
      removed++;
    } catch {
      // One of another user's, which is theirs to remove.
    }
  }
  return removed;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

/** Whether nobody listens at the socket. */
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
