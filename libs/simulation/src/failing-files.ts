import type { OpenMode, StorageFile, StorageFiles } from "@heddle/storage/storage-files";

/** Files of which one operation fails, by its number; the others succeed. */
export class FailingFiles implements StorageFiles {
  /** Operations that change the disk, so far. */
  operations = 0;
  readonly stillOpen = new Set<StorageFile>();
  readonly #files: StorageFiles;
  readonly #at: number;
  readonly #code: string;

  constructor(files: StorageFiles, at: number, code: string) {
    this.#files = files;
    this.#at = at;
    this.#code = code;
  }

  makeDirectory(path: string): Promise<void> {
    return this.#files.makeDirectory(path);
  }

  list(directory: string): Promise<string[]> {
    return this.#files.list(directory);
  }

  rename(from: string, to: string): Promise<void> {
    return this.#pass(() => this.#files.rename(from, to));
  }

  remove(path: string): Promise<void> {
    return this.#pass(() => this.#files.remove(path));
  }

  syncDirectory(directory: string): Promise<void> {
    return this.#pass(() => this.#files.syncDirectory(directory));
  }

  async open(path: string, mode: OpenMode): Promise<StorageFile> {
    const file = await this.#pass(() => this.#files.open(path, mode));
    const failing: StorageFile = {
      read: (length, position) => file.read(length, position),
      size: () => file.size(),
      write: (buffer, position) => this.#pass(() => file.write(buffer, position)),
      truncate: (size) => this.#pass(() => file.truncate(size)),
      sync: () => this.#pass(() => file.sync()),
      close: () => {
        this.stillOpen.delete(failing);
        return file.close();
      },
    };
    this.stillOpen.add(failing);
    return failing;
  }

  async #pass<Result>(operation: () => Promise<Result>): Promise<Result> {
    if (this.operations++ !== this.#at) return operation();
    throw Object.assign(new Error(`${this.#code}: it fails`), { code: this.#code });
  }
}
