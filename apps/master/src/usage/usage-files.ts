import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { replaceFile } from "@heddle/base/replace-file";
import { USAGE_DAYS } from "@heddle/control/usage";
import type { UsageSum } from "@heddle/control/usage-sum";
import type { UsageBook } from "./usage-book.ts";
import { dayOfText, dayText, type UsageRow } from "./usage-row.ts";

/** Bound on the rows of all days; beyond it the rows of the oldest days go, and their sums stay. */
const MAX_ROW_BYTES = 16 * 2 ** 30;

/** The sums of a day, and how much of its rows they count. */
interface DaySums {
  readonly bytes: number;
  readonly sums: readonly UsageSum[];
}

/** The files of the ledger: rows by day in `usage`, and their sums in `usage-sums`. */
export class UsageFiles {
  readonly #rows: string;
  readonly #sums: string;

  constructor(dataDirectory: string) {
    this.#rows = join(dataDirectory, "usage");
    this.#sums = join(dataDirectory, "usage-sums");
  }

  rowsOf(day: number): string {
    return join(this.#rows, `usage-${dayText(day)}.jsonl`);
  }

  async makeFolders(): Promise<void> {
    await mkdir(this.#rows, { recursive: true, mode: 0o700 });
    await mkdir(this.#sums, { recursive: true, mode: 0o700 });
  }

  /** Reads all days: their sums, and the rows that those do not count. */
  async load(book: UsageBook): Promise<void> {
    const days = new Set([...(await daysIn(this.#rows)), ...(await daysIn(this.#sums))]);
    for (const day of [...days].sort((a, b) => a - b)) await this.#loadDay(day, book);
  }

  async save(day: number, content: DaySums): Promise<void> {
    await replaceFile(this.#sumsOf(day), JSON.stringify(content));
  }

  /** Removes what is older than the kept days or beyond the bound on bytes. */
  async trim(today: number, book: UsageBook): Promise<void> {
    let bytes = 0;
    for (const day of (await daysIn(this.#rows)).sort((a, b) => b - a)) {
      bytes += await sizeOf(this.rowsOf(day));
      const isOld = day <= today - USAGE_DAYS || (bytes > MAX_ROW_BYTES && day < today);
      if (isOld) await rm(this.rowsOf(day), { force: true });
    }
    for (const day of await daysIn(this.#sums)) {
      if (day > today - USAGE_DAYS) continue;
      await rm(this.#sumsOf(day), { force: true });
      book.drop(day);
    }
  }

  async #loadDay(day: number, book: UsageBook): Promise<void> {
    const { bytes, sums } = await this.#sumsRead(day);
    for (const sum of sums) book.add({ ...sum, day });
    const size = await sizeOf(this.rowsOf(day));
    if (size <= bytes) return;
    const input = createReadStream(this.rowsOf(day), { start: bytes, encoding: "utf8" });
    for await (const line of createInterface({ input })) {
      const row = rowOf(line);
      if (row) book.record(row);
    }
    await this.save(day, { bytes: size, sums: book.without(day, []) });
  }

  async #sumsRead(day: number): Promise<DaySums> {
    try {
      return JSON.parse(await readFile(this.#sumsOf(day), "utf8")) as DaySums;
    } catch {
      // Absent or damaged: the rows have it all.
      return { bytes: 0, sums: [] };
    }
  }

  #sumsOf(day: number): string {
    return join(this.#sums, `usage-${dayText(day)}.json`);
  }
}

async function daysIn(folder: string): Promise<number[]> {
  const names = await readdir(folder);
  return names.flatMap((name) => {
    const text = /^usage-(\d{4}-\d\d-\d\d)\.jsonl?$/.exec(name)?.[1];
    return (text === undefined ? undefined : dayOfText(text)) ?? [];
  });
}

async function sizeOf(file: string): Promise<number> {
  return (await stat(file).catch(() => undefined))?.size ?? 0;
}

/** A row that a crash cut is none. */
function rowOf(line: string): UsageRow | undefined {
  try {
    return line === "" ? undefined : (JSON.parse(line) as UsageRow);
  } catch {
    return undefined;
  }
}
