import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { replaceFileSync } from "@heddle/base/replace-file";

/**
 * The node's id: created at the first start and kept in the data directory, so that masters
 * recognize it after a restart. Throws an AppError if the directory is unusable.
 */
export function nodeIdentity(dataDirectory: string): string {
  const path = join(dataDirectory, "node-id");
  try {
    mkdirSync(dataDirectory, { recursive: true, mode: 0o700 });
    const known = readIfThere(path);
    if (known) return known;
    const id = randomUUID();
    replaceFileSync(path, `${id}\n`);
    return id;
  } catch (cause) {
    const message = `cannot keep the node's id in ${dataDirectory}: choose another --data`;
    throw new AppError("invalid_value", message, { cause });
  }
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8").trim() || undefined;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}
