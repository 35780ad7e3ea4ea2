import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { NO_SECRET_KEYS, type SecretKeys, sealedBy } from "@heddle/base/secret-keys";
import type { StorageFiles } from "./storage-files.ts";

export interface BlobStoreOptions {
  readonly files: StorageFiles;
  readonly directory: string;
  /** The first one encrypts the contents; without keys they are in clear. */
  readonly keys?: SecretKeys | undefined;
}

interface OpenedBlob {
  readonly bytes: Uint8Array;
  readonly content: Uint8Array;
  readonly key: string | undefined;
}

const TEMPORARY_SUFFIX = ".tmp";

/**
 * Contents on disk by their SHA-256. A file gets its name only when it is complete and synced, and
 * its content is verified when it is read. One process owns the directory.
 */
export class BlobStore {
  readonly #files: StorageFiles;
  readonly #directory: string;
  readonly #keys: SecretKeys;
  /** Keyed by digest: the number of its latest put in this process, or 0. */
  readonly #puts = new Map<string, number>();
  /** Keyed by digest: the latest change of its file, while it runs. */
  readonly #changes = new Map<string, Promise<void>>();
  #lastPut = 0;

  private constructor({ files, directory, keys = NO_SECRET_KEYS }: BlobStoreOptions) {
    this.#files = files;
    this.#directory = directory;
    this.#keys = keys;
  }

  /** Opens the directory, created if missing, and removes unfinished writes. */
  static async open(options: BlobStoreOptions): Promise<BlobStore> {
    const store = new BlobStore(options);
    const { files, directory } = options;
    await files.makeDirectory(directory);
    for (const name of await files.list(directory)) {
      if (name.endsWith(TEMPORARY_SUFFIX)) await files.remove(`${directory}/${name}`);
      else if (isDigest(name)) store.#puts.set(name, 0);
    }
    return store;
  }

  /**
   * Stores the content and resolves with its digest when it is on the disk, also where it was.
   * Throws `insufficient_storage` if the disk is full.
   */
  async put(content: Uint8Array): Promise<string> {
    const digest = digestOf(content);
    const [key] = this.#keys.ids;
    const bytes = key === undefined ? content : this.#keys.seal(content, purposeOf(digest), key);
    const put = ++this.#lastPut;
    const temporary = `${this.#directory}/incoming-${put}${TEMPORARY_SUFFIX}`;
    await this.#inTurn(digest, async () => {
      try {
        await this.#write(temporary, bytes);
        await this.#files.rename(temporary, this.#pathOf(digest));
      } catch (error) {
        await this.#files.remove(temporary).catch(() => undefined);
        throw isFull(error) ? this.#fullDisk(error) : error;
      }
      this.#puts.set(digest, put);
      await this.#files.syncDirectory(this.#directory);
    });
    return digest;
  }

  /** Undefined where it is not here; throws `server_error` if the file is damaged. */
  async get(digest: string): Promise<Uint8Array | undefined> {
    return (await this.#open(digest))?.content;
  }

  /** Its file as it is on the disk; like `get` for its faults. */
  async file(digest: string): Promise<Uint8Array | undefined> {
    return (await this.#open(digest))?.bytes;
  }

  /** Stores what `file` returned, under the present key. Throws `server_error` if it is damaged. */
  async putFile(digest: string, bytes: Uint8Array): Promise<void> {
    await this.put(this.#contentOf(digest, bytes));
  }

  /** Whether its file is here; it may still prove to be damaged. */
  has(digest: string): boolean {
    return this.#puts.has(digest);
  }

  /** Removes it unless it was put again after that put; resolves when it is gone. */
  delete(digest: string, put: number): Promise<void> {
    return this.#inTurn(digest, async () => {
      if (this.#puts.get(digest) !== put) return;
      this.#puts.delete(digest);
      await this.#files.remove(this.#pathOf(digest));
      await this.#files.syncDirectory(this.#directory);
    });
  }

  /** The digests of all contents here, each with the number of its latest put. */
  list(): ReadonlyMap<string, number> {
    return this.#puts;
  }

  /** Like `get`; a file that the first key does not encrypt is written again. */
  async verify(digest: string): Promise<Uint8Array | undefined> {
    const opened = await this.#open(digest);
    if (opened && opened.key !== this.#keys.ids[0]) await this.put(opened.content);
    return opened?.content;
  }

  /** The file, its content and the id of the key that encrypts it. */
  async #open(digest: string): Promise<OpenedBlob | undefined> {
    if (!this.has(digest)) return undefined;
    const bytes = await this.#read(this.#pathOf(digest));
    return { bytes, content: this.#contentOf(digest, bytes), key: sealedBy(bytes) };
  }

  #contentOf(digest: string, bytes: Uint8Array): Uint8Array {
    const content = this.#keys.open(bytes, purposeOf(digest));
    if (digestOf(content) === digest) return content;
    const message = `the content ${digest} does not match its checksum`;
    throw new AppError("server_error", message);
  }

  async #write(path: string, bytes: Uint8Array): Promise<void> {
    const file = await this.#files.open(path, "buffered");
    try {
      await file.truncate(0);
      await file.write(bytes, 0);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  async #read(path: string): Promise<Uint8Array> {
    const file = await this.#files.open(path, "read");
    try {
      return await file.read(await file.size(), 0);
    } finally {
      await file.close();
    }
  }

  #fullDisk(cause: unknown): AppError {
    const message = `the disk of ${this.#directory} is full, so no document can be stored; make room there`;
    return new AppError("insufficient_storage", message, { cause });
  }

  #pathOf(digest: string): string {
    return `${this.#directory}/${digest}`;
  }

  /** Changes of one content come one after the other. */
  async #inTurn(digest: string, work: () => Promise<void>): Promise<void> {
    const before = this.#changes.get(digest) ?? Promise.resolve();
    const change = before.then(work);
    const settled = change.catch(() => undefined);
    this.#changes.set(digest, settled);
    try {
      await change;
    } finally {
      if (this.#changes.get(digest) === settled) this.#changes.delete(digest);
    }
  }
}

/** The SHA-256 that names a content, hexadecimal. */
export function digestOf(content: Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

function isFull(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT";
}

function isDigest(name: string): boolean {
  return /^[0-9a-f]{64}$/.test(name);
}

function purposeOf(digest: string): `document ${string}` {
  return `document ${digest}`;
}
