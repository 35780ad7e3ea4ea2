import { readFileSync } from "node:fs";
import { AppError } from "./errors.ts";

const FAULTS: Readonly<Record<string, string>> = {
  EISDIR: "is a directory",
  ENOTDIR: "does not exist: a part of the path is a file",
  EACCES: "may not be read by this user",
};

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
    return readFileSync(path, "utf8");
  } catch (cause) {
    const { code = "", message: text } = cause as NodeJS.ErrnoException;
    if (code === "ENOENT") return undefined;
    throw flagFileError(flag, path, FAULTS[code] ?? `cannot be read (${text})`, wanted, cause);
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
