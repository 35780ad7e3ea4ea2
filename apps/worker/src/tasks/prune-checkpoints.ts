import { realpath, rm } from "node:fs/promises";
import { dirname, isAbsolute, join, normalize, sep } from "node:path";

/**
 * Removes all but the `keep` latest of the named checkpoints, oldest first in the list, and returns
 * those that stay. A name that leads out of the directory, by itself or through a link that a task has
 * made there, is none of ours and is left alone.
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
    const target = join(directory, path);
    if (await isBelow(directory, target)) await rm(target, { recursive: true, force: true });
  }
  return kept;
}

/** Whether the folder that the path is in lies in the directory once links are followed; false where there is none. */
async function isBelow(directory: string, path: string): Promise<boolean> {
  const real = (folder: string) => realpath(folder).catch(() => undefined);
  const [root, parent] = await Promise.all([real(directory), real(dirname(path))]);
  if (root === undefined || parent === undefined) return false;
  return parent === root || parent.startsWith(`${root}${sep}`);
}
