import { type FileHandle, mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { LogSink, SinkBatch } from "./log-sink.ts";

/** A file of this size is put aside, and this many of those are kept. */
const FILE_BYTES = 64 * 2 ** 20;
const KEPT_FILES = 16;
/** More than a line can have. */
const TAIL_BYTES = 128 * 1024;

export interface FileSinkOptions {
  readonly directory: string;
  /** The cluster, which names the files. */
  readonly cluster: string;
  readonly fileBytes?: number;
  readonly keptFiles?: number;
}

/**
 * Events as lines of JSON in files of this master. The last line is their progress; one that was
 * not finished is removed.
 */
export class FileSink implements LogSink {
  readonly name: string;
  readonly gatherMs = 0;
  readonly #options: FileSinkOptions;
  #file: FileHandle | undefined;
  #bytes = 0;
  #next: number | undefined;

  constructor(options: FileSinkOptions) {
    this.name = `file://${options.directory}`;
    this.#options = options;
  }

  async next(): Promise<number | undefined> {
    if (!this.#file) await this.#open();
    return this.#next;
  }

  async write({ first, texts }: SinkBatch): Promise<void> {
    if (!this.#file || this.#bytes > (this.#options.fileBytes ?? FILE_BYTES)) await this.#turn();
    const file = this.#file as unknown as FileHandle;
    const bytes = Buffer.from(texts.map((text) => `${text}\n`).join(""));
    try {
      await file.write(bytes, 0, bytes.byteLength, this.#bytes);
      await file.datasync();
    } catch (error) {
      // Opened again it loses what was not finished, and knows its last line.
      await this.close();
      throw error;
    }
    this.#bytes += bytes.byteLength;
    this.#next = first + texts.length;
  }

  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  get #path(): string {
    return join(this.#options.directory, `events-${this.#options.cluster}.jsonl`);
  }

  async #open(): Promise<void> {
    const { directory } = this.#options;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const file = await open(this.#path, "a+", 0o600).then(async (created) => {
      await created.close();
      return open(this.#path, "r+");
    });
    try {
      const { size } = await file.stat();
      const tail = await lastLine(file, size);
      if (tail.end < size) await file.truncate(tail.end);
      this.#bytes = tail.end;
      this.#next = tail.sequence ?? (await this.#nextOfAside());
      this.#file = file;
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Puts a full file aside, under its last event, and removes the oldest of those. */
  async #turn(): Promise<void> {
    const { directory, keptFiles = KEPT_FILES } = this.#options;
    if (this.#file && this.#next !== undefined) {
      await this.close();
      const last = String(this.#next - 1).padStart(16, "0");
      await rename(this.#path, join(directory, `events-${this.#options.cluster}.${last}.jsonl`));
      const aside = await this.#aside();
      for (const name of aside.slice(0, -keptFiles)) await rm(join(directory, name));
    }
    await this.#open();
  }

  async #aside(): Promise<readonly string[]> {
    const { directory, cluster } = this.#options;
    const form = new RegExp(`^events-${cluster}\\.\\d{16}\\.jsonl$`);
    return (await readdir(directory)).filter((name) => form.test(name)).sort();
  }

  async #nextOfAside(): Promise<number | undefined> {
    const last = (await this.#aside()).at(-1);
    return last === undefined ? undefined : Number(last.split(".").at(-2)) + 1;
  }
}

/** Where the last whole line ends, and the sequence after its event. */
async function lastLine(
  file: FileHandle,
  size: number,
): Promise<{ readonly end: number; readonly sequence?: number }> {
  const start = Math.max(0, size - TAIL_BYTES);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(size - start), 0, size - start, start);
  const text = buffer.subarray(0, bytesRead);
  const end = text.lastIndexOf(10);
  if (end < 0) {
    if (start === 0) return { end: 0 };
    throw new AppError("server_error", "the file's last line is no event; move the file away");
  }
  const line = text.subarray(text.lastIndexOf(10, end - 1) + 1, end).toString();
  let sequence: number;
  try {
    sequence = Number((JSON.parse(line) as { readonly sequence?: unknown }).sequence);
  } catch {
    sequence = Number.NaN;
  }
  if (!Number.isSafeInteger(sequence)) {
    throw new AppError("server_error", "the file's last line is no event; move the file away");
  }
  return { end: start + end + 1, sequence: sequence + 1 };
}
