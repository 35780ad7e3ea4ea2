import { type FileHandle, open } from "node:fs/promises";
import type { Logger } from "@heddle/observability/logger";
import type { OnApplicationShutdown, OnModuleInit } from "@nestjs/common";
import type { UsageBook } from "./usage-book.ts";
import type { UsageFiles } from "./usage-files.ts";
import { dayOf, type UsageRow } from "./usage-row.ts";

/** Bound on rows that wait for the disk; beyond it rows are dropped and counted. */
const MAX_WAITING_ROWS = 100_000;
/** Bound on the characters of labels in waiting rows; beyond it labels are omitted. */
const MAX_WAITING_LABEL_CHARS = 16 * 1024 * 1024;
const FLUSH_MS = 500;
/**
 * This many rows are written at once. Rows held for half a second under load would be promoted to
 * the heap's old generation, and soon be garbage there.
 */
const FLUSH_ROWS = 256;
/** The sums are written after this many bytes of rows: a start reads at most this many again. */
const SUMS_EVERY_BYTES = 16 * 2 ** 20;

/**
 * The usage rows as JSON lines, one file per UTC day, written in batches. A call never waits for
 * it; a crash of the process loses at most the last half second.
 */
export class UsageLedger implements OnModuleInit, OnApplicationShutdown {
  readonly #files: UsageFiles;
  readonly #book: UsageBook;
  readonly #logger: Logger;
  readonly #timer: NodeJS.Timeout;
  #rows: UsageRow[] = [];
  #labelChars = 0;
  #lost = 0;
  #flushing: Promise<void> | undefined;
  #file: { readonly day: number; readonly handle: FileHandle } | undefined;
  #bytesSinceSums = 0;

  constructor(files: UsageFiles, book: UsageBook, logger: Logger) {
    this.#files = files;
    this.#book = book;
    this.#logger = logger;
    this.#timer = setInterval(() => this.#startFlush(), FLUSH_MS);
  }

  /** Reads what earlier runs have written: budgets count it. */
  async onModuleInit(): Promise<void> {
    await this.#files.makeFolders();
    await this.#files.load(this.#book);
    await this.#files.trim(dayOf({ atMs: Date.now() }), this.#book);
  }

  record(row: UsageRow): void {
    this.#book.record(row);
    if (this.#rows.length >= MAX_WAITING_ROWS) this.#lost++;
    // After a failed write the rows stay and are retried by the timer.
    else if (this.#rows.push(this.#bounded(row)) === FLUSH_ROWS) this.#startFlush();
  }

  #bounded(row: UsageRow): UsageRow {
    const chars = labelChars(row);
    if (this.#labelChars + chars > MAX_WAITING_LABEL_CHARS) return { ...row, metadata: undefined };
    this.#labelChars += chars;
    return row;
  }

  /** Writes the waiting rows. */
  async onApplicationShutdown(): Promise<void> {
    clearInterval(this.#timer);
    while (this.#flushing) await this.#flushing;
    await this.#flush();
    await this.#closeDay();
  }

  #startFlush(): void {
    this.#flushing ??= this.#flush().then((isWritten) => {
      this.#flushing = undefined;
      // Rows that arrived during the write passed the mark without starting another.
      if (isWritten && this.#rows.length >= FLUSH_ROWS) this.#startFlush();
    });
  }

  /** A failed write is logged and its rows are kept for the next; false then. */
  async #flush(): Promise<boolean> {
    const rows = this.#rows;
    this.#rows = [];
    try {
      const groups = [...Map.groupBy(rows, dayOf)].sort(([a], [b]) => a - b);
      for (const [day, group] of groups) {
        const handle = await this.#open(day);
        const text = group.map((row) => `${JSON.stringify(row)}\n`).join("");
        this.#bytesSinceSums += (await handle.write(text)).bytesWritten;
      }
      if (this.#bytesSinceSums >= SUMS_EVERY_BYTES) await this.#saveSums();
      if (this.#lost > 0) this.#logger.error({ lost: this.#lost }, "usage rows were lost");
      this.#lost = 0;
      for (const row of rows) this.#labelChars -= labelChars(row);
      return true;
    } catch (error) {
      this.#rows = [...rows, ...this.#rows].slice(0, MAX_WAITING_ROWS);
      this.#logger.error({ err: error }, "usage rows could not be written");
      return false;
    }
  }

  async #open(day: number): Promise<FileHandle> {
    if (this.#file?.day === day) return this.#file.handle;
    await this.#closeDay();
    await this.#files.makeFolders();
    const handle = await open(this.#files.rowsOf(day), "a", 0o600);
    this.#file = { day, handle };
    await this.#files.trim(day, this.#book);
    return handle;
  }

  async #closeDay(): Promise<void> {
    const file = this.#file;
    if (!file) return;
    try {
      await this.#saveSums();
    } finally {
      this.#file = undefined;
      await file.handle.close();
    }
  }

  /** The sums of what the day's file has; rows that still wait are in no file. */
  async #saveSums(): Promise<void> {
    if (!this.#file) return;
    const { day, handle } = this.#file;
    const waiting = this.#rows.filter((row) => dayOf(row) === day);
    const sums = this.#book.without(day, waiting);
    const { size } = await handle.stat();
    await this.#files.save(day, { bytes: size, sums });
    this.#bytesSinceSums = 0;
  }
}

function labelChars({ metadata = {} }: UsageRow): number {
  let chars = 0;
  for (const [key, value] of Object.entries(metadata)) chars += key.length + value.length;
  return chars;
}
