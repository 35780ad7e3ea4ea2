import { rm } from "node:fs/promises";
import { isAbsolute, join, normalize } from "node:path";

/**
 * Removes all but the `keep` latest of the named checkpoints, oldest first in the list, and returns
 * those that stay. A name that leads out of the directory is none of ours and is left alone.
 */
export async function pruneCheckpoints(
  directory: string,
  names: readonly string[],
  keep: number,
): Promise<string[]> {
  const latest = names.filter((name, i) => names.lastIndexOf(name) === i);
  const old = latest.slice(0, Math.max(0, latest.length - keep));
  const kept = latest.slice(old.length);
  for (const name of old) {
    const path = normalize(name);
    const isWithin = !isAbsolute(path) && path !== "." && !path.startsWith("..");
    // What a kept checkpoint lies in, or is named after, must stay too.
    if (!isWithin || kept.some((other) => normalize(other).startsWith(`${path}/`))) continue;
    await rm(join(directory, path), { recursive: true, force: true });
  }
  return kept;
}
