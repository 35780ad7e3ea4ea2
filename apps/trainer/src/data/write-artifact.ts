import { rm, writeFile } from "node:fs/promises";
import { UnwritableFile } from "../trainer-errors.ts";

/**
 * Writes an artifact: bytes, text, or what the function writes to the path. Rejects with an
 * UnwritableFile where the system refuses, and removes a partial file, which would fill the disk.
 */
export async function writeArtifact(
  path: string,
  content: Uint8Array | string | ((path: string) => Promise<void>),
): Promise<void> {
  try {
    await (typeof content === "function" ? content(path) : writeFile(path, content));
  } catch (cause) {
    // An error without a system call is not the disk's.
    if (!(cause instanceof Error && "syscall" in cause)) throw cause;
    await rm(path, { force: true }).catch(() => undefined);
    throw new UnwritableFile(`the artifact ${path}`, cause);
  }
}
