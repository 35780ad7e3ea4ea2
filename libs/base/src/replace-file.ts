import { randomUUID } from "node:crypto";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";

/** The owner alone reads and writes it. */
const PRIVATE_MODE = 0o600;
/** A file that other users may read, as far as the umask allows. */
export const SHARED_MODE = 0o666;

/** Replaces a file, flushed to the disk: another process sees the old content or the new. */
export async function replaceFile(
  path: string,
  content: string | Uint8Array,
  mode = PRIVATE_MODE,
): Promise<void> {
  const draft = draftOf(path);
  try {
    await writeFile(draft, content, { mode, flush: true });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/** See `replaceFile`. */
export function replaceFileSync(
  path: string,
  content: string | Uint8Array,
  mode = PRIVATE_MODE,
): void {
  const draft = draftOf(path);
  try {
    writeFileSync(draft, content, { mode, flush: true });
    renameSync(draft, path);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
}

/** Each writer has a draft of its own: several may replace the file at a time. */
function draftOf(path: string): string {
  return `${path}.${randomUUID()}.tmp`;
}
