import { type FileHandle, open, readdir, rename, rm, stat } from "node:fs/promises";
import { connect, createServer, type Server } from "node:net";
import { join } from "node:path";

const IS_DRAFT = /^lock-\d+-[0-9a-f]+\.sock\.new$/;
/** A draft is there for a moment; one that is younger may be a process's that starts. */
const DRAFT_AGE_MS = 60_000;

/**
 * A Unix socket in a data directory that shows that its process is alive.
 * Any container of this machine that sees the directory can connect to it, whatever its process ids are.
 * The kernel closes it when the process ends.
 */
export class LockSocket {
  /** The socket's name; its process id is the one that its own container knows. */
  readonly name: string;
  readonly #server: Server;

  private constructor(name: string, server: Server) {
    this.name = name;
    this.#server = server;
  }

  /** Undefined where the directory's file system, or the length of its path, allows no socket. */
  static async listen(directory: string, nonce: string): Promise<LockSocket | undefined> {
    const name = `lock-${process.pid}-${nonce}.sock`;
    const server = createServer((socket) => socket.destroy());
    const draft = `${name}.new`;
    const isListening = await throughShortPath(
      directory,
      (base) =>
        new Promise<boolean>((resolve) => {
          server.once("error", () => resolve(false));
          server.listen({ path: join(base, draft) }, () => resolve(true));
        }),
    );
    if (!isListening) return undefined;
    // A lock must not keep a process alive that has nothing else to do.
    server.unref();
    // Under its name it answers from the first moment on.
    await rename(join(directory, draft), join(directory, name));
    return new LockSocket(name, server);
  }

  /** Process ids of the others that are present; what those that are gone have left is removed. */
  async others(directory: string): Promise<number[]> {
    const names = (await readdir(directory)).filter((name) => pidOf(name) && name !== this.name);
    const present: number[] = [];
    await this.#removeDrafts(directory);
    for (const name of names) {
      if (await throughShortPath(directory, (base) => answers(join(base, name)))) {
        present.push(pidOf(name) as number);
      } else await rm(join(directory, name), { force: true });
    }
    return present;
  }

  /** Removes sockets of processes that were killed before these had their names. */
  async #removeDrafts(directory: string): Promise<void> {
    for (const name of (await readdir(directory)).filter((each) => IS_DRAFT.test(each))) {
      const { mtimeMs } = await stat(join(directory, name)).catch(() => ({ mtimeMs: Date.now() }));
      if (Date.now() - mtimeMs < DRAFT_AGE_MS) continue;
      if (await throughShortPath(directory, (base) => answers(join(base, name)))) continue;
      await rm(join(directory, name), { force: true });
    }
  }

  async close(directory: string): Promise<void> {
    this.#server.close();
    await rm(join(directory, this.name), { force: true });
  }
}

function pidOf(name: string): number | undefined {
  const pid = /^lock-(\d+)-[0-9a-f]+\.sock$/.exec(name)?.[1];
  return pid === undefined ? undefined : Number(pid);
}

/**
 * False only where the kernel refuses: a socket without permission to connect has a live owner.
 */
function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", ({ code }: NodeJS.ErrnoException) =>
      resolve(code !== "ECONNREFUSED" && code !== "ENOENT"),
    );
  });
}

/** A socket's path may have about 100 bytes; Linux has a short one for any open directory. */
async function throughShortPath<T>(
  directory: string,
  work: (base: string) => Promise<T>,
): Promise<T> {
  if (process.platform !== "linux") return work(directory);
  const handle: FileHandle = await open(directory, "r");
  try {
    return await work(`/proc/self/fd/${handle.fd}`);
  } finally {
    await handle.close();
  }
}
