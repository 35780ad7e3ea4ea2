import type { FileHandle } from "node:fs/promises";
import { progressLine } from "@heddle/contracts/api/job-spec";
import type { z } from "zod";
import { openToRead } from "./task-directory.ts";

export type ProgressLine = z.output<typeof progressLine>;

/** A longer line is skipped. */
const MAX_LINE_BYTES = 64 * 1024;
/** The most bytes of one read; of more its end is read, and a few pieces of what comes before. */
const MAX_READ_BYTES = 256 * 1024;
const MAX_PIECES = 4;
const PIECE_BYTES = 32 * 1024;
/** The most lines of one read: of more every n-th, and the latest with checkpoints. */
const MAX_LINES = 1_000;
const MAX_CHECKPOINT_LINES = 100;

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

  /** The byte up to which whole lines were read. */
  get offset(): number {
    return this.#offset - Buffer.byteLength(this.#rest);
  }

  /** The lines that were added since the last call; only those before `end` if it is given. */
  async read(end = Number.POSITIVE_INFINITY): Promise<ProgressLine[]> {
    const text = await this.#readNew(end);
    if (text === "") return [];
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > MAX_LINE_BYTES) {
      this.#rest = "";
      this.malformed += 1;
    }
    return thinned(lines).flatMap((line) => this.#parse(line));
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

  async #readNew(end: number): Promise<string> {
    const file = await openToRead(this.#root, this.#path);
    if (!file) return "";
    try {
      const { size: now } = await file.stat();
      if (now < this.#offset) this.#restart(0);
      const size = Math.min(now, end);
      const earlier = await this.#readPieces(file, size - MAX_READ_BYTES);
      const text = await textAt(file, this.#offset, size - this.#offset);
      this.#offset = size;
      return earlier + text;
    } finally {
      await file.close();
    }
  }

  /** Whole lines of what was added before `end`, from all over it. */
  async #readPieces(file: FileHandle, end: number): Promise<string> {
    const bytes = end - this.#offset;
    if (bytes <= 0) return "";
    const count = Math.min(MAX_PIECES, Math.floor(bytes / PIECE_BYTES));
    const pieces: string[] = [];
    for (let at = 1; at <= count; at++) {
      const pieceEnd = this.#offset + Math.floor((bytes * at) / count);
      const text = await textAt(file, pieceEnd - PIECE_BYTES, PIECE_BYTES);
      pieces.push(text.slice(text.indexOf("\n") + 1, text.lastIndexOf("\n") + 1));
    }
    this.#restart(end);
    return pieces.join("");
  }

  #restart(offset: number): void {
    this.#offset = offset;
    this.#rest = "";
  }
}

async function textAt(file: FileHandle, offset: number, length: number): Promise<string> {
  const bytes = Buffer.alloc(length);
  const { bytesRead } = await file.read(bytes, 0, length, offset);
  return bytes.toString("utf8", 0, bytesRead);
}

/** Every n-th line up to the last one, and the latest with checkpoints. */
function thinned(lines: readonly string[]): readonly string[] {
  const every = Math.ceil(lines.length / MAX_LINES);
  if (every <= 1) return lines;
  const named = lines.flatMap((line, at) => (line.includes('"checkpoint') ? at : []));
  const kept = new Set(named.slice(-MAX_CHECKPOINT_LINES));
  return lines.filter((_, at) => kept.has(at) || (lines.length - 1 - at) % every === 0);
}

/** The line as JSON text for masters. */
export function encodeProgress(line: ProgressLine | undefined): string {
  const text = JSON.stringify(line ?? {});
  if (text.length <= MAX_REPORTED_LENGTH) return text;
  const known = Object.entries(line ?? {}).filter(([name]) => documented.has(name));
  return JSON.stringify(Object.fromEntries(known));
}
