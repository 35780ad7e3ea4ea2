import { createHash } from "node:crypto";
import {
  closeSync,
  type Dirent,
  readdirSync,
  readFileSync,
  realpathSync,
  type Stats,
  statSync,
} from "node:fs";
import { join, parse, relative } from "node:path";
import { openFileBeneathSync } from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import type { Lineage } from "./lineage.ts";

/** A text becomes four bytes for each byte, and all of it is in memory. */
const MAX_DATA_BYTES = 256 * 2 ** 20;
const MAX_FILES = 10_000;
const MAX_DEPTH = 16;

/** A job's data on this machine. */
export interface TrainingData {
  /** In the order of the paths given, and within folders by name. */
  readonly files: readonly { readonly path: string; readonly bytes: Buffer }[];
  readonly digest: NonNullable<Lineage["data"]>;
}

/**
 * Reads files, and folders with all their contents except hidden files and links. Throws an
 * AppError `invalid_value` that names the path.
 */
export function readTrainingData(paths: readonly string[]): TrainingData {
  const found = paths.flatMap((path) => filesBelow(path, 0));
  if (found.length === 0) throw fault(paths.join(", "), "holds no files");
  if (found.length > MAX_FILES) {
    throw fault(paths.join(", "), `holds ${found.length} files, and ${MAX_FILES} are the most`);
  }
  let total = 0;
  const whole = createHash("sha256");
  const files = found.map((path) => {
    total += sizeOf(path);
    if (total > MAX_DATA_BYTES) {
      const most = `${MAX_DATA_BYTES / 2 ** 20} MiB`;
      throw fault(path, `makes the data larger than ${most}, the most that a job reads`);
    }
    const bytes = read(path, () => readRegular(path));
    whole.update(bytes);
    return { path, bytes };
  });
  const described = files.map(({ path, bytes }) => ({
    path,
    bytes: bytes.length,
    sha256: createHash("sha256").update(bytes).digest("hex"),
  }));
  return { files, digest: { sha256: whole.digest("hex"), bytes: total, files: described } };
}

/** The files' bytes as one text. Throws where a file is not text, or where all are empty. */
export function joinText({ files }: TrainingData): Buffer {
  for (const { path, bytes } of files) checkText(path, bytes);
  const text = Buffer.concat(files.map(({ bytes }) => bytes));
  if (text.length === 0) throw fault(files.map(({ path }) => path).join(", "), "is empty");
  return text;
}

/** Throws where the bytes are not UTF-8 text: UTF-16 begins with its mark, or has zero bytes. */
export function checkText(path: string, bytes: Buffer): void {
  const mark = bytes.subarray(0, 2).toString("hex");
  if (mark === "fffe" || mark === "feff") throw fault(path, "is UTF-16 text: save it as UTF-8");
  const at = bytes.indexOf(0);
  if (at < 0) return;
  const why = `is not text: it has a zero byte at ${at}`;
  throw fault(path, `${why}. Give text, and where it is UTF-16 or UTF-32, save it as UTF-8`);
}

/** A fault of the data at a path. */
export function fault(path: string, what: string, cause?: unknown): AppError {
  return new AppError("invalid_value", `the training data ${path} ${what}`, { cause });
}

/** A fault of the data at a path by a field of the config, as `config.outputs`. */
export function configFault(path: string, param: string, what: string): AppError {
  return new AppError("invalid_value", `the training data ${path} ${what}`, { param });
}

const QUOTED_CHARACTERS = 40;
/** The most names of columns that a message lists. */
const LISTED_NAMES = 16;

/**
 * Text of a file in a message: a long one is cut, with its length, so that the message stays
 * readable.
 */
export function quoted(text: string): string {
  const short = JSON.stringify(text.slice(0, QUOTED_CHARACTERS));
  if (text.length <= QUOTED_CHARACTERS) return short;
  return `${short.slice(0, -1)}…" (${text.length} characters)`;
}

/** Names in a message, the first few of many. */
export function listed(names: readonly string[]): string {
  const first = names.slice(0, LISTED_NAMES).map(cut).join(", ");
  return names.length > LISTED_NAMES ? `${first} and ${names.length - LISTED_NAMES} more` : first;
}

/** A column's name in a message, in one line. */
export function cut(name: string): string {
  const whole = quoted(name);
  return whole === `"${name}"` ? name : whole;
}

function filesBelow(path: string, depth: number): string[] {
  if (depth > MAX_DEPTH) throw fault(path, `lies more than ${MAX_DEPTH} folders deep`);
  const found = read(path, () => statSync(path));
  if (found.isFile()) return [path];
  // Reading a pipe may block forever, and a device may have no end.
  if (!found.isDirectory()) throw fault(path, `is ${kindOf(found)}: give a file or a folder`);
  const entries: Dirent[] = read(path, () => readdirSync(path, { withFileTypes: true }));
  return entries
    .filter((entry) => !entry.name.startsWith(".") && (entry.isFile() || entry.isDirectory()))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap(({ name }) => filesBelow(join(path, name), depth + 1));
}

/** The path is resolved once: a later replacement is not followed. */
function readRegular(path: string): Buffer {
  const real = realpathSync(path);
  const { root } = parse(real);
  const file = openFileBeneathSync(root, relative(root, real));
  try {
    return readFileSync(file);
  } finally {
    closeSync(file);
  }
}

function kindOf(found: Stats): string {
  if (found.isFIFO()) return "a named pipe";
  return found.isSocket() ? "a socket" : "a device";
}

function sizeOf(path: string): number {
  return read(path, () => statSync(path).size);
}

function read<Result>(path: string, work: () => Result): Result {
  try {
    return work();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw fault(path, `cannot be read on this worker: ${why}`, cause);
  }
}
