import { progressLine } from "@heddle/contracts/api/job-spec";
import type { z } from "zod";
import { openToRead } from "./task-directory.ts";

export type ProgressLine = z.output<typeof progressLine>;

/** A longer line is skipped. */
const MAX_LINE_BYTES = 64 * 1024;
/** The most bytes of one read; of more the end is read, since the latest lines count. */
const MAX_READ_BYTES = 256 * 1024;
/** The most lines of one read: the latest, and before them the latest with checkpoints. */
const MAX_LINES = 500;
const MAX_EARLIER_LINES = 100;

/** The longest reported line; of a longer one only the documented fields are reported. */
const MAX_REPORTED_LENGTH = 2_048;
const documented: ReadonlySet<string> = new Set(Object.keys(progressLine.shape));

/**
 * Follows the file to which a program writes its progress, one line of JSON each. Malformed lines
 * are counted and skipped; a truncated or replaced file is read from its beginning.
 */
export class ProgressFile {
  readonly #root: string;
  readonly #path: string;
  #offset = 0;
  #rest = "";
  /** Lines that were not JSON of the documented shape. */
  malformed = 0;

  /** The path is relative to the root, below which no link is followed. */
  constructor(root: string, path: string) {
    this.#root = root;
    this.#path = path;
  }

  /** The lines that were added since the last call. */
  async read(): Promise<ProgressLine[]> {
    const text = await this.#readNew();
    if (text === "") return [];
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > MAX_LINE_BYTES) {
      this.#rest = "";
      this.malformed += 1;
    }
    const earlier = lines.slice(0, -MAX_LINES).filter((line) => line.includes('"checkpoint'));
    const taken = [...earlier.slice(-MAX_EARLIER_LINES), ...lines.slice(-MAX_LINES)];
    return taken.flatMap((line) => this.#parse(line));
  }

  #parse(line: string): ProgressLine[] {
    if (line.trim() === "") return [];
    try {
      if (line.length <= MAX_LINE_BYTES) return [progressLine.parse(JSON.parse(line))];
    } catch {
      // Counted below.
    }
    this.malformed += 1;
    return [];
  }

  async #readNew(): Promise<string> {
    const file = await openToRead(this.#root, this.#path);
    if (!file) return "";
    try {
      const { size } = await file.stat();
      if (size < this.#offset) this.#restart(0);
      if (size - this.#offset > MAX_READ_BYTES) this.#restart(size - MAX_READ_BYTES);
      const bytes = Buffer.alloc(size - this.#offset);
      const { bytesRead } = await file.read(bytes, 0, bytes.byteLength, this.#offset);
      this.#offset += bytesRead;
      return bytes.toString("utf8", 0, bytesRead);
    } finally {
      await file.close();
    }
  }

  #restart(offset: number): void {
    this.#offset = offset;
    this.#rest = "";
  }
}

/** The line as JSON text for masters. */
export function encodeProgress(line: ProgressLine | undefined): string {
  const text = JSON.stringify(line ?? {});
  if (text.length <= MAX_REPORTED_LENGTH) return text;
  const known = Object.entries(line ?? {}).filter(([name]) => documented.has(name));
  return JSON.stringify(Object.fromEntries(known));
}
