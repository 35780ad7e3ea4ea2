import type { StorageFile, StorageFiles } from "@heddle/storage/storage-files";

interface FileContent {
  bytes: Uint8Array;
  synced: Uint8Array;
}

/**
 * A disk in memory: what is not synced is lost in a crash, writes can be held up, and a sync can be
 * made to fail. Renames and removals are durable at once.
 */
export class MemoryFiles implements StorageFiles {
  readonly #files = new Map<string, FileContent>();
  #held: (() => void)[] | undefined;
  failure: Error | undefined;

  /** Lets no durable write end until `release`. */
  hold(): void {
    this.#held ??= [];
  }

  release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const go of held) go();
  }

  /** Loses what was not synced, as a power cut does. */
  crash(): void {
    this.release();
    for (const content of this.#files.values()) content.bytes = content.synced.slice();
  }

  paths(): string[] {
    return [...this.#files.keys()].sort();
  }

  /** Flips a bit of a file. */
  damage(path: string, offset: number): void {
    const content = this.#files.get(path);
    if (!content) throw new Error(`there is no file ${path}`);
    content.bytes[offset] = (content.bytes[offset] ?? 0) ^ 1;
    content.synced = content.bytes.slice();
  }

  async makeDirectory(): Promise<void> {}

  async list(directory: string): Promise<string[]> {
    const prefix = `${directory}/`;
    const names = this.paths().filter((path) => path.startsWith(prefix));
    return names.map((path) => path.slice(prefix.length)).filter((name) => !name.includes("/"));
  }

  async open(path: string, mode: "buffered" | "durable"): Promise<StorageFile> {
    const empty = { bytes: new Uint8Array(0), synced: new Uint8Array(0) };
    const content = this.#files.get(path) ?? empty;
    this.#files.set(path, content);
    return new MemoryFile(content, mode === "durable" ? () => this.#barrier() : undefined);
  }

  async rename(from: string, to: string): Promise<void> {
    const content = this.#files.get(from);
    if (!content) throw new Error(`there is no file ${from}`);
    this.#files.delete(from);
    this.#files.set(to, content);
  }

  async remove(path: string): Promise<void> {
    this.#files.delete(path);
  }

  async syncDirectory(): Promise<void> {}

  async #barrier(): Promise<void> {
    const held = this.#held;
    if (held) await new Promise<void>((resolve) => held.push(resolve));
    if (this.failure) throw this.failure;
  }
}

class MemoryFile implements StorageFile {
  readonly #content: FileContent;
  readonly #barrier: (() => Promise<void>) | undefined;

  constructor(content: FileContent, barrier: (() => Promise<void>) | undefined) {
    this.#content = content;
    this.#barrier = barrier;
  }

  async write(buffer: Uint8Array, position: number): Promise<void> {
    const end = position + buffer.byteLength;
    if (end > this.#content.bytes.byteLength) this.#resize(end);
    this.#content.bytes.set(buffer, position);
    if (!this.#barrier) return;
    const copy = buffer.slice();
    await this.#barrier();
    if (end > this.#content.synced.byteLength) await this.sync();
    this.#content.synced.set(copy, position);
  }

  async read(length: number, position: number): Promise<Uint8Array> {
    return this.#content.bytes.slice(position, position + length);
  }

  async size(): Promise<number> {
    return this.#content.bytes.byteLength;
  }

  async truncate(size: number): Promise<void> {
    this.#resize(size);
  }

  async sync(): Promise<void> {
    this.#content.synced = this.#content.bytes.slice();
  }

  async close(): Promise<void> {}

  #resize(size: number): void {
    const bytes = new Uint8Array(size);
    bytes.set(this.#content.bytes.subarray(0, size));
    this.#content.bytes = bytes;
  }
}
