import { isAbsolute, normalize } from "node:path";
import { filesBeneath, openFileBeneath, removeBeneath } from "@heddle/base/beneath";

/**
 * Removes all but the `keep` latest of the named checkpoints, which are listed oldest first, and
 * returns the rest. A name that leads out of the directory, by itself or through a link, is
 * ignored.
 */
export async function pruneCheckpoints(
  root: string,
  jobId: string,
  names: readonly string[],
  keep: number,
): Promise<string[]> {
  const latest = [...new Set(names.toReversed())].reverse();
  const old = latest.slice(0, Math.max(0, latest.length - keep));
  const kept = latest.slice(old.length);
  for (const name of old) {
    const path = checkpointPath(name);
    // The folder of a kept checkpoint, and files named after it, must stay too.
    if (!path || kept.some((other) => normalize(other).startsWith(`${path}/`))) continue;
    await removeBeneath(root, `${jobId}/${path}`).catch(unlessLink);
  }
  return kept;
}

/** The bytes of a named checkpoint, a file or a folder; 0 where it is gone or is a link. */
export async function checkpointBytes(root: string, jobId: string, name: string): Promise<number> {
  const path = checkpointPath(name);
  if (!path) return 0;
  try {
    const file = await openFileBeneath(root, `${jobId}/${path}`);
    return await file
      .stat()
      .then(({ size }) => size)
      .finally(() => file.close());
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (code !== "EISDIR") return 0;
    const files = await filesBeneath(root, `${jobId}/${path}`).catch(() => []);
    return files.reduce((sum, { bytes }) => sum + bytes, 0);
  }
}

/** The path of a named checkpoint in its job's folder; undefined where the name leads out of it. */
export function checkpointPath(name: string): string | undefined {
  const path = normalize(name).replace(/\/$/, "");
  return isAbsolute(path) || path === "." || path.startsWith("..") ? undefined : path;
}

function unlessLink(error: unknown): void {
  const { code = "" } = error as NodeJS.ErrnoException;
  if (code !== "ENOTDIR" && code !== "ELOOP") throw error;
}
