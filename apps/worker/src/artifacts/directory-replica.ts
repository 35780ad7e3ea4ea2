import { createHash, randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, lstat, mkdir, readdir, rename, rmdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import {
  atEntryBeneath,
  filesBeneath,
  makeDirectoryBeneath,
  openFileBeneath,
  removeBeneath,
} from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import { openedFile } from "./opened-file.ts";
import { type ArtifactReplica, CHECKPOINTS, type CopySource, type OpenedFile } from "./replica.ts";

/** The prefix of a folder that is being written; after a day it is abandoned. */
const DRAFT = ".new-";
const DRAFT_MS = 24 * 3_600_000;
const COPY_BYTES = 1024 * 1024;
const CREATE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;

/**
 * A second place in a directory that several workers share, such as a network file system. A copy
 * appears atomically, after each file was read back and its digest compared.
 */
export class DirectoryReplica implements ArtifactReplica {
  readonly #root: string;
  readonly #maxAgeMs: number;

  constructor(root: string, maxAgeMs: number) {
    this.#root = root;
    this.#maxAgeMs = maxAgeMs;
  }

  async copy(from: CopySource, name: string, isReplaced = false): Promise<void> {
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    if (!isReplaced && (await this.#isThere(name))) return;
    const draft = `${DRAFT}${randomUUID()}`;
    try {
      await makeDirectoryBeneath(this.#root, draft);
      for (const file of from.files) {
        const source = { root: from.root, path: `${from.folder}/${file.name}` };
        await copyFile(source, { root: this.#root, path: `${draft}/${file.name}` });
      }
      await makeDirectoryBeneath(this.#root, dirname(name));
      if (isReplaced) await removeBeneath(this.#root, name);
      await atEntryBeneath(this.#root, name, (entry) => rename(join(this.#root, draft), entry));
    } catch (error) {
      await removeBeneath(this.#root, draft).catch(() => undefined);
      // Another worker with the same folder was first.
      if (isReplaced || !(await this.#isThere(name))) throw error;
    }
  }

  async restore(name: string, to: string): Promise<void> {
    for (const file of await filesBeneath(this.#root, name)) {
      const from = { root: this.#root, path: `${name}/${file.name}` };
      // The same file may be in the copies of several ranks.
      await copyFile(from, { root: to, path: file.name }).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "EEXIST") throw error;
      });
    }
  }

  async open(name: string, file: string): Promise<OpenedFile | undefined> {
    const path = `${name}/${file}`;
    const found = await openFileBeneath(this.#root, path).catch(() => undefined);
    return found && openedFile(found);
  }

  async names(folder: string): Promise<string[]> {
    return await readdir(join(this.#root, folder)).catch(() => []);
  }

  async remove(name: string): Promise<void> {
    await removeBeneath(this.#root, name);
  }

  async prune(): Promise<void> {
    for (const folder of [".", CHECKPOINTS]) {
      for (const name of await this.names(folder)) {
        const path = folder === "." ? name : `${folder}/${name}`;
        if (name.startsWith(DRAFT)) await this.#removeOlder(path, DRAFT_MS);
        else if (name !== CHECKPOINTS) await this.#pruneJob(path);
      }
    }
  }

  async #pruneJob(folder: string): Promise<void> {
    for (const name of await this.names(folder)) {
      await this.#removeOlder(`${folder}/${name}`, this.#maxAgeMs);
    }
    await rmdir(join(this.#root, folder)).catch(() => undefined);
  }

  async #removeOlder(name: string, maxAgeMs: number): Promise<void> {
    const found = await lstat(join(this.#root, name)).catch(() => undefined);
    if (found && Date.now() - found.mtimeMs > maxAgeMs) await removeBeneath(this.#root, name);
  }

  #isThere(name: string): Promise<boolean> {
    return lstat(join(this.#root, name)).then(
      () => true,
      () => false,
    );
  }
}

interface Place {
  readonly root: string;
  readonly path: string;
}

async function copyFile(from: Place, to: Place): Promise<void> {
  if (to.path.includes("/")) await makeDirectoryBeneath(to.root, dirname(to.path));
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
  file: FileHandle,
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
