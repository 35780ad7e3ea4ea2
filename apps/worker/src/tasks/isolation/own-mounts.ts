import { closeSync, mkdirSync, openSync, type Stats, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { LandlockConfinement } from "./launch-orders.ts";
import { MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_REC, mount, setReadOnly } from "./libc.ts";
import { COVER_BYTES } from "./task-view.ts";

// Landlock restricts no chmod, chown and attributes, by which a task could open the worker's files to
// other accounts. A filter of system calls sees no paths; on a read-only mount the
// kernel refuses them, and nothing is reached through a covered path.

const O_PATH = 0o10000000;
const MAX_MOUNTS = 4_096;

type Kind = "hidden" | "readable" | "writable";

/**
 * Hides the hidden paths, and makes all but the writable ones read-only. The process must have mounts
 * of its own already, and the rights to change them. Throws where it cannot.
 */
export function restrictMounts(paths: LandlockConfinement): void {
  const places = placesOf(paths);
  if (places.length > MAX_MOUNTS)
    throw new Error(`the task would need ${places.length} mounts, more than ${MAX_MOUNTS}`);
  const sources = places.map(({ path, kind }) => (kind === "hidden" ? -1 : openSync(path, O_PATH)));
  places.forEach(({ path, kind, isFolder }, at) => {
    if (kind === "hidden") cover(path, isFolder);
    else {
      makeTarget(path, isFolder);
      mount(`/proc/self/fd/${sources[at]}`, path, null, MS_BIND | MS_REC, null);
    }
  });
  for (const source of sources) if (source >= 0) closeSync(source);
  if (!setReadOnly("/", true, true)) throw new Error("the mounts could not be made read-only");
  for (const { path, kind } of places) {
    const isReadOnly = kind !== "writable";
    // A mount below that was read-only before stays so, and then only the upper one changes.
    const isSet =
      setReadOnly(path, isReadOnly, !isReadOnly) || setReadOnly(path, isReadOnly, false);
    if (!isSet) throw new Error(`the mount of ${path} could not be made ${kind}`);
  }
}

/** The paths that exist, each once, what contains another before it. */
function placesOf({ hidden, readable, writable }: LandlockConfinement) {
  const kinds = new Map<string, Kind>();
  for (const path of readable) kinds.set(path, "readable");
  for (const path of writable) kinds.set(path, "writable");
  for (const path of hidden) kinds.set(path, "hidden");
  const given = new Set(kinds.keys());
  for (const path of hidden.flatMap((each) => waysTo(each, writable)))
    if (!kinds.has(path)) kinds.set(path, "readable");
  const all = [...kinds].sort(([a], [b]) => a.length - b.length);
  const places: { path: string; kind: Kind; isFolder: boolean }[] = [];
  for (const [path, kind] of all) {
    const stat = statOf(path);
    const above = places.findLast((place) => path.startsWith(`${place.path}/`));
    const isCovered = above?.kind === "hidden";
    if (!stat || (isCovered && (kind === "hidden" || !given.has(path)))) continue;
    places.push({ path, kind, isFolder: stat.isDirectory() });
  }
  return places;
}

/**
 * The folders from a writable path to a hidden one below it. Renaming one would take the cover away
 * with it, and free the path for another; the kernel refuses that of mount points.
 */
function waysTo(hidden: string, writable: readonly string[]): string[] {
  const root = writable.find((path) => hidden.startsWith(`${path}/`));
  const way: string[] = [];
  for (
    let folder = dirname(hidden);
    root !== undefined && folder !== root;
    folder = dirname(folder)
  )
    way.push(folder);
  return way;
}

/** Undefined of a path that is missing, or that this user, and so the task, cannot reach. */
function statOf(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function cover(path: string, isFolder: boolean): void {
  const options = `mode=0755,size=${COVER_BYTES}`;
  if (!isFolder) mount("/dev/null", path, null, MS_BIND, null);
  else mount("heddle-task", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options);
}

/** Below a cover the path is missing. */
function makeTarget(path: string, isFolder: boolean): void {
  if (statSync(path, { throwIfNoEntry: false })) return;
  mkdirSync(isFolder ? path : dirname(path), { recursive: true, mode: 0o755 });
  if (!isFolder) writeFileSync(path, "");
}
