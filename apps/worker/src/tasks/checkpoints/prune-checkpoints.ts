import { isAbsolute, normalize } from "node:path";
import { removeBeneath } from "@heddle/base/beneath";

/**
 * Removes all but the `keep` latest of the named checkpoints, oldest first in the list, and returns
 * those that stay. A name that leads out of the directory, by itself or through a link that a task has
 * made there, is none of ours and is left alone.
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
    // What a kept checkpoint lies in, or is named after, must stay too.
    if (!path || kept.some((other) => normalize(other).startsWith(`${path}/`))) continue;
    await removeBeneath(root, `${jobId}/${path}`).catch(unlessLink);
  }
  return kept;
}

/** Where a named checkpoint lies in its job's folder; undefined where the name leads out of it. */
export function checkpointPath(name: string): string | undefined {
  const path = normalize(name).replace(/\/$/, "");
  return isAbsolute(path) || path === "." || path.startsWith("..") ? undefined : path;
}

function unlessLink(error: unknown): void {
  const { code = "" } = error as NodeJS.ErrnoException;
  if (code !== "ENOTDIR" && code !== "ELOOP") throw error;
}
