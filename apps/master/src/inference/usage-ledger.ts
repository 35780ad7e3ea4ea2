import { type FileHandle, mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "@heddle/observability/logger";
import type { OnApplicationShutdown } from "@nestjs/common";
import type { UsageRow } from "./accounting.ts";

/** Bound on rows that wait for the disk; beyond it rows are dropped and counted. */
const MAX_WAITING_ROWS = 100_000;
/** Bound on the characters of labels in waiting rows; beyond it labels are omitted. */
const MAX_WAITING_LABEL_CHARS = 16 * 1024 * 1024;
const FLUSH_MS = 500;
/**
 * This many rows are written at once: under load, rows held for half a second would be promoted to
 * the heap's old generation and soon be garbage there.
 */
const FLUSH_ROWS = 256;

/**
 * The usage rows as JSON lines, one file per UTC day, written in batches. A call never waits for
 * it; a crash of the process loses at most the last half second.
 */
export class UsageLedger implements OnApplicationShutdown {
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
    await this.#file?.handle.close();
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
    const earlier = this.#file?.handle;
    this.#file = undefined;
    await earlier?.close();
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

/** Days since the epoch; the file name is formatted once per day. */
function dayOf(row: UsageRow): number {
  return Math.floor(row.atMs / DAY_MS);
}

function dayText(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}
