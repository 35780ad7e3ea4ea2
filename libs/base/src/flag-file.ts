import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { AppError } from "./errors.ts";

const FAULTS: Readonly<Record<string, string>> = {
  EISDIR: "is a directory",
  ENOTDIR: "does not exist: a part of the path is a file",
  EACCES: "may not be read by this user",
};

/** Far more than any such file has; a device may never end. */
const MAX_BYTES = 16 * 2 ** 20;
const PIECE_BYTES = 64 * 1024;
/** Between two reads of a pipe whose writer has not written yet. */
const POLL_MS = 10;
/** Absent on Windows. With it the open of a pipe without a writer returns at once. */
const NON_BLOCKING = constants.O_NONBLOCK ?? 0;

/**
 * The text of the file that a flag names; undefined if there is no file. Throws `invalid_value`
 * with the flag, the path, the fault and the expected content, `wanted`.
 */
export function readFlagFileIfThere(
  flag: string,
  path: string,
  wanted: string,
): string | undefined {
  try {
    return readBoundedText(path);
  } catch (cause) {
    const { code = "", message: text } = cause as NodeJS.ErrnoException;
    if (code === "ENOENT") return undefined;
    throw flagFileError(flag, path, FAULTS[code] ?? `cannot be read (${text})`, wanted, cause);
  }
}

/** The text of a small file; throws on a pipe without a writer, and on what has no end. */
export function readBoundedText(path: string): string {
  const file = openSync(path, constants.O_RDONLY | NON_BLOCKING);
  try {
    const bytes = readAll(file);
    if (bytes.length === 0 && fstatSync(file).isFIFO()) throw new Error("a pipe without a writer");
    return bytes.toString("utf8");
  } finally {
    closeSync(file);
  }
}

function readAll(file: number): Buffer {
  const pieces: Buffer[] = [];
  for (let bytes = 0; bytes <= MAX_BYTES; ) {
    const piece = Buffer.allocUnsafe(PIECE_BYTES);
    const count = readSome(file, piece);
    if (count === 0) return Buffer.concat(pieces);
    pieces.push(piece.subarray(0, count));
    bytes += count;
  }
  throw new Error(`more than ${MAX_BYTES / 2 ** 20} MiB`);
}

function readSome(file: number, piece: Buffer): number {
  for (;;) {
    try {
      return readSync(file, piece);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, POLL_MS);
    }
  }
}

/** Like `readFlagFileIfThere`, but throws if there is no file. */
export function readFlagFile(flag: string, path: string, wanted: string): string {
  const text = readFlagFileIfThere(flag, path, wanted);
  if (text !== undefined) return text;
  throw flagFileError(flag, path, "does not exist", wanted);
}

function flagFileError(
  flag: string,
  path: string,
  fault: string,
  wanted: string,
  cause?: unknown,
): AppError {
  return new AppError("invalid_value", `${flag} ${path} ${fault}. Give ${wanted}.`, { cause });
}
