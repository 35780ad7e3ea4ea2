import { createHash, randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { dirname } from "node:path";
import { makeDirectoryBeneath, openFileBeneath } from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import { PART_BYTES, type S3Client } from "@heddle/storage/s3/s3-client";
import { z } from "zod";
import type { ArtifactReplica, CopySource, OpenedFile } from "./replica.ts";

const MANIFEST = "manifest.json";
/** Enough for a hundred thousand files with long names. */
const MAX_MANIFEST_BYTES = 64 * 2 ** 20;
/** The most objects that one run removes for their age; the next run continues. */
const MAX_PRUNED = 10_000;
const CHUNK_BYTES = 256 * 1024;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;

/** The last object of a copy that is written: it makes the copy exist. */
const manifestShape = z.object({
  files: z.array(
    z.object({ name: z.string(), bytes: z.number(), sha256: z.string(), key: z.string() }),
  ),
});
type Manifest = z.infer<typeof manifestShape>;
type StoredFile = Manifest["files"][number];

/**
 * A second place in an S3-compatible store. The files of a copy are objects with plain keys
 * (`NAME/GENERATION/NUMBER`); `NAME/manifest.json` has their names and digests.
 */
export class S3Replica implements ArtifactReplica {
  readonly #client: S3Client;
  readonly #maxAgeMs: number;

  constructor(client: S3Client, maxAgeMs: number) {
    this.#client = client;
    this.#maxAgeMs = maxAgeMs;
  }

  async copy({ root, folder, files }: CopySource, name: string, isReplaced = false): Promise<void> {
    const before = await this.#manifest(name);
    if (before && !isReplaced) return;
    const generation = randomUUID();
    const stored: StoredFile[] = [];
    try {
      for (const [number, file] of files.entries()) {
        const key = `${name}/${generation}/${number}`;
        stored.push(await this.#put(key, root, `${folder}/${file.name}`, file.name));
      }
      const manifest = Buffer.from(JSON.stringify({ files: stored } satisfies Manifest));
      await this.#client.put(`${name}/${MANIFEST}`, manifest.byteLength, async (at, bytes) =>
        manifest.subarray(at, at + bytes),
      );
    } catch (error) {
      await this.#removeAll(stored.map(({ key }) => key)).catch(() => undefined);
      throw error;
    }
    await this.#removeAll((before?.files ?? []).map(({ key }) => key));
  }

  async #put(key: string, root: string, path: string, name: string): Promise<StoredFile> {
    const file = await openFileBeneath(root, path);
    try {
      const { size: bytes } = await file.stat();
      const hash = createHash("sha256");
      await this.#client.put(key, bytes, async (at, length) => {
        const part = Buffer.alloc(length);
        for (let done = 0; done < length; ) {
          const { bytesRead } = await file.read(part, done, length - done, at + done);
          if (bytesRead === 0) throw new AppError("conflict", `${path} became shorter`);
          done += bytesRead;
        }
        hash.update(part);
        return part;
      });
      return { name, bytes, sha256: hash.digest("hex"), key };
    } finally {
      await file.close();
    }
  }

  async restore(name: string, to: string): Promise<void> {
    const manifest = await this.#manifest(name);
    for (const file of manifest?.files ?? []) {
      const folder = dirname(file.name);
      if (folder !== ".") await makeDirectoryBeneath(to, folder);
      const target = await openFileBeneath(to, file.name, CREATE).catch(unlessThere);
      if (!target) continue;
      try {
        const hash = createHash("sha256");
        for await (const data of this.#read(file, 0, file.bytes)) {
          hash.update(data);
          await target.appendFile(data);
        }
        if (hash.digest("hex") !== file.sha256) {
          const message = `the copy of ${name}/${file.name} in the store was changed`;
          throw new AppError("server_error", message);
        }
        await target.sync();
      } finally {
        await target.close();
      }
    }
  }

  async open(name: string, file: string): Promise<OpenedFile | undefined> {
    const found = (await this.#manifest(name))?.files.find((each) => each.name === file);
    if (!found) return undefined;
    return {
      bytes: found.bytes,
      read: (offset, end) => this.#read(found, offset, end),
      close: async () => undefined,
    };
  }

  async names(folder: string): Promise<string[]> {
    const { folders } = await this.#client.list(`${folder}/`, "/");
    return folders.map((each) => each.slice(folder.length + 1, -1));
  }

  async remove(name: string): Promise<void> {
    const { objects } = await this.#client.list(`${name}/`);
    await this.#removeAll(objects.map(({ key }) => key));
  }

  async prune(): Promise<void> {
    const { objects } = await this.#client.list("");
    const old = objects.filter(({ atMs }) => Date.now() - atMs > this.#maxAgeMs);
    await this.#removeAll(old.slice(0, MAX_PRUNED).map(({ key }) => key));
  }

  /** Manifests first: a copy without one does not exist. */
  async #removeAll(keys: readonly string[]): Promise<void> {
    const isManifest = (key: string) => key.endsWith(`/${MANIFEST}`);
    const ordered = [...keys.filter(isManifest), ...keys.filter((key) => !isManifest(key))];
    for (const key of ordered) await this.#client.remove(key);
  }

  async #manifest(name: string): Promise<Manifest | undefined> {
    const content = await this.#client.get(`${name}/${MANIFEST}`, 0, MAX_MANIFEST_BYTES);
    return content && manifestShape.parse(JSON.parse(content.toString("utf8")));
  }

  async *#read({ key, name }: StoredFile, offset: number, end: number): AsyncGenerator<Buffer> {
    for (let at = offset; at < end; ) {
      const part = await this.#client.get(key, at, Math.min(PART_BYTES, end - at));
      if (!part?.byteLength) {
        throw new AppError("not_found", `the copy of ${name} is no longer in the object store`);
      }
      for (let from = 0; from < part.byteLength; from += CHUNK_BYTES) {
        yield part.subarray(from, from + CHUNK_BYTES);
      }
      at += part.byteLength;
    }
  }
}

/** The same file may be in the copies of several ranks. */
function unlessThere(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "EEXIST") throw error;
}
