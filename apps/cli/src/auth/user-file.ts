import { mkdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { AppError } from "@heddle/base/errors";
import { replaceFileSync } from "@heddle/base/replace-file";

const MAX_FILE_BYTES = 1_048_576;

interface UserFile<Kept> {
  readonly file: string;
  /** The content of a file that does not exist. */
  readonly empty: Kept;
  /** What the file's JSON says; throws where it is damaged. */
  readonly read: (json: unknown) => Kept;
  /** How to repair a damaged one. */
  readonly remedy: string;
}

/** Reads a file that commands keep for this user. */
export function readUserFile<Kept>({ file, empty, read, remedy }: UserFile<Kept>): Kept {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return empty;
    throw new AppError("invalid_value", `Could not read ${file}: ${String(error)}.`);
  }
  try {
    if (text.length > MAX_FILE_BYTES) throw new Error("it is too large");
    return read(JSON.parse(text));
  } catch {
    throw new AppError("invalid_value", `${file} is damaged. ${remedy}`);
  }
}

/** Replaces such a file, which the user alone may read. */
export function writeUserFile(file: string, json: object): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  replaceFileSync(file, `${JSON.stringify(json, null, 2)}\n`);
}
