import { rm, writeFile } from "node:fs/promises";
import { UnwritableFile } from "../trainer-errors.ts";

/**
 * Writes a file of what a job leaves: bytes, text, or what the function writes to the path. Rejects
 * with an UnwritableFile where the system refuses; then nothing of it is left that fills the disk.
 */
export async function writeArtifact(
  path: string,
  content: Uint8Array | string | ((path: string) => Promise<void>),
): Promise<void> {
  try {
    await (typeof content === "function" ? content(path) : writeFile(path, content));
  } catch (cause) {
    // What no system call has refused is a fault of its own, and no disk's.
    if (!(cause instanceof Error && "syscall" in cause)) throw cause;
    await rm(path, { force: true }).catch(() => undefined);
    throw new UnwritableFile(`the artifact ${path}`, cause);
  }
}
