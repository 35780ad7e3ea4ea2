import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "@heddle/observability/logger";
import type { UsageRow } from "./accounting.ts";

/** Rows that may wait for the disk; beyond it rows are lost and counted, never memory. */
const MAX_WAITING_ROWS = 100_000;
/** Characters that callers' labels of waiting rows may have; labels beyond it are left out. */
const MAX_WAITING_LABEL_CHARS = 16 * 1024 * 1024;
const FLUSH_MS = 500;
/**
 * So many rows are written without waiting for the time: under load, rows that lie for half a second
 * are taken for long-lived by the collector, and fill the heap's old part with what is soon garbage.
 */
const FLUSH_ROWS = 256;

/**
 * The usage rows as JSON lines, one file for each UTC day, written in batches: a call never waits
 * for it, and a crash of the process loses at most the last half second.
 */
export class UsageLedger {
  readonly #directory: string;
  readonly #logger: Logger;
  readonly #timer: NodeJS.Timeout;
  #rows: UsageRow[] = [];
  #labelChars = 0;
  #lost = 0;
  #flushing: Promise<void> | undefined;
  #file: { readonly day: string; readonly handle: FileHandle } | undefined;

  constructor(directory: string, logger: Logger) {
    this.#directory = directory;
    this.#logger = logger;
    this.#timer = setInterval(() => this.#startFlush(), FLUSH_MS);
  }

  record(row: UsageRow): void {
    if (this.#rows.length >= MAX_WAITING_ROWS) this.#lost++;
    // Where rows could not be written they stay, and are tried again when it is time.
    else if (this.#rows.push(this.#bounded(row)) === FLUSH_ROWS) this.#startFlush();
  }

  #bounded(row: UsageRow): UsageRow {
    const chars = labelChars(row);
    if (this.#labelChars + chars > MAX_WAITING_LABEL_CHARS) return { ...row, metadata: undefined };
    this.#labelChars += chars;
    return row;
  }

  /** Writes what waits. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    while (this.#flushing) await this.#flushing;
    await this.#flush();
    await this.#file?.handle.close();
  }

  #startFlush(): void {
    this.#flushing ??= this.#flush().then((isWritten) => {
      this.#flushing = undefined;
      // What came meanwhile passed the mark without starting anything.
      if (isWritten && this.#rows.length >= FLUSH_ROWS) this.#startFlush();
    });
  }

  /** Usage that cannot be written is told in the log and kept for the next time; false then. */
  async #flush(): Promise<boolean> {
    const rows = this.#rows;
    this.#rows = [];
    try {
      for (const [day, group] of Map.groupBy(rows, dayOf)) {
        const handle = await this.#open(dayText(day));
        await handle.write(group.map((row) => `${JSON.stringify(row)}\n`).join(""));
      }
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

  async #open(day: string): Promise<FileHandle> {
    if (this.#file?.day === day) return this.#file.handle;
    await this.#file?.handle.close();
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const handle = await open(join(this.#directory, `usage-${day}.jsonl`), "a", 0o600);
    this.#file = { day, handle };
    return handle;
  }
}

function labelChars({ metadata = {} }: UsageRow): number {
  let chars = 0;
  for (const [key, value] of Object.entries(metadata)) chars += key.length + value.length;
  return chars;
}

const DAY_MS = 86_400_000;

/** Days since the epoch; a day is put into words once for all its rows. */
function dayOf(row: UsageRow): number {
  return Math.floor(row.atMs / DAY_MS);
}

function dayText(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}
