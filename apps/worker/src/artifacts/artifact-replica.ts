import { createHash, randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { lstat, mkdir, readdir, rename, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import {
  atEntryBeneath,
  filesBeneath,
  makeDirectoryBeneath,
  openFileBeneath,
  removeBeneath,
} from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";

/** Before the name of a folder that is being written; one that stays so for a day was given up. */
const DRAFT = ".new-";
const DRAFT_MS = 24 * 3_600_000;
const COPY_BYTES = 1024 * 1024;
const CREATE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;

/**
 * A second place for what tasks have left: a directory that several workers share, as a network file
 * system. A folder appears there as a whole, once each file was read back with the digest of the first.
 */
export class ArtifactReplica {
  readonly root: string;
  readonly #maxAgeMs: number;

  constructor(root: string, maxAgeMs: number) {
    this.root = root;
    this.#maxAgeMs = maxAgeMs;
  }

  /** Copies a folder, `JOB/ATTEMPT.RANK`, unless it is there. */
  async copy(from: string, name: string): Promise<void> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    if (await isThere(join(this.root, name))) return;
    const draft = `${DRAFT}${randomUUID()}`;
    try {
      await makeDirectoryBeneath(this.root, draft);
      for (const file of await filesBeneath(from, name)) {
        const path = `${draft}/${file.name}`;
        await makeDirectoryBeneath(this.root, dirname(path));
        await copyFile({ root: from, path: `${name}/${file.name}` }, { root: this.root, path });
      }
      await makeDirectoryBeneath(this.root, dirname(name));
      await atEntryBeneath(this.root, name, (entry) => rename(join(this.root, draft), entry));
    } catch (error) {
      await removeBeneath(this.root, draft).catch(() => undefined);
      // Another worker that has the same folder was first.
      if (!(await isThere(join(this.root, name)))) throw error;
    }
  }

  /** Removes what is too old, whoever has left it. */
  async prune(): Promise<void> {
    for (const job of await readdir(this.root).catch(() => [])) {
      if (job.startsWith(DRAFT)) await this.#removeOlder(job, DRAFT_MS);
      else {
        const tasks = await readdir(join(this.root, job)).catch(() => []);
        for (const task of tasks) await this.#removeOlder(`${job}/${task}`, this.#maxAgeMs);
        await rmdir(join(this.root, job)).catch(() => undefined);
      }
    }
  }

  async #removeOlder(name: string, maxAgeMs: number): Promise<void> {
    const found = await lstat(join(this.root, name)).catch(() => undefined);
    if (found && Date.now() - found.mtimeMs > maxAgeMs) await removeBeneath(this.root, name);
  }
}

interface Place {
  readonly root: string;
  readonly path: string;
}

async function copyFile(from: Place, to: Place): Promise<void> {
  const source = await openFileBeneath(from.root, from.path);
  try {
    const target = await openFileBeneath(to.root, to.path, CREATE);
    try {
      const wanted = await digestOf(source, async (data, at) => {
        await target.write(data, 0, data.byteLength, at);
      });
      await target.sync();
      const copied = await digestOf(target, async () => undefined);
      if (copied === wanted) return;
      throw new AppError("server_error", `${to.path} was read back with other bytes`);
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

async function digestOf(
  file: Awaited<ReturnType<typeof openFileBeneath>>,
  each: (data: Buffer, at: number) => Promise<void>,
): Promise<string> {
  const hash = createHash("sha256");
  const chunk = Buffer.alloc(COPY_BYTES);
  for (let at = 0; ; ) {
    const { bytesRead } = await file.read(chunk, 0, COPY_BYTES, at);
    if (bytesRead === 0) return hash.digest("hex");
    const data = chunk.subarray(0, bytesRead);
    hash.update(data);
    await each(data, at);
    at += bytesRead;
  }
}

function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
