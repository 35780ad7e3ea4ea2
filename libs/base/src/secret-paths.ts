import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { homedir, userInfo } from "node:os";
import { join, resolve } from "node:path";
import { isSameProcess, processStart } from "./process-alive.ts";
import { replaceFileSync } from "./replace-file.ts";

// The paths with secrets of a user's processes, which a worker of the same user hides from its
// tasks. Each process registers its paths in a file of a directory that only the user can read.

/** An entry outlives its process for as long as one of its paths exists: the secrets are still there. */
interface Entry {
  readonly pid: number;
  /** The start time of the process, which distinguishes it from a later one with the same id. */
  readonly started: string | undefined;
  readonly paths: readonly string[];
}

const MAX_ENTRIES = 256;
const MAX_ENTRY_BYTES = 16 * 1024;

/**
 * Default data directories of this user's processes. HOME may differ between processes of one user.
 */
export function ownHeddleFolders(): string[] {
  const homes = [homedir(), passwordHome()].filter((home) => home !== undefined);
  return [...new Set(homes)].map((home) => join(home, ".heddle"));
}

/** Undefined for a user id without an entry in the password database. */
function passwordHome(): string | undefined {
  try {
    return userInfo().homedir;
  } catch {
    return undefined;
  }
}

/**
 * Registers files and directories that hold secrets of this process, before it writes them. Calls
 * `onFault` if they cannot be registered; the process works without.
 */
export function registerSecretPaths(
  paths: readonly string[],
  onFault: (message: string) => void,
  folders = registries(),
): void {
  const faults: string[] = [];
  for (const folder of folders) {
    try {
      writeEntry(folder, [...new Set(paths.map((path) => resolve(path)))].sort());
    } catch (error) {
      faults.push((error as Error).message);
    }
  }
  if (faults.length < folders.length) return;
  const advice = "name them by --task-hidden of each worker, or give this user a home directory";
  onFault(
    `tasks of a worker of this user may read this process's secrets, since their paths could not be registered (${faults.join("; ")}): ${advice}`,
  );
}

/** The existing paths that processes of this user have registered. */
export function registeredSecretPaths(folders = registries()): string[] {
  return folders.flatMap((folder) =>
    entryFiles(folder).flatMap((file) => readEntry(file)?.paths ?? []),
  );
}

function registries(): string[] {
  return ownHeddleFolders().map((folder) => join(folder, "secret-paths"));
}

/** A restarted process with the same paths replaces its entry. */
function writeEntry(folder: string, paths: readonly string[]): void {
  const entry: Entry = { pid: process.pid, started: processStart(process.pid), paths };
  const text = JSON.stringify(entry);
  if (Buffer.byteLength(text) > MAX_ENTRY_BYTES)
    throw new Error(`${paths.length} paths need more than ${MAX_ENTRY_BYTES} bytes`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const name = createHash("sha256").update(paths.join("\0")).digest("hex").slice(0, 32);
  const file = join(folder, `${name}.json`);
  makeRoom(folder, file);
  replaceFileSync(file, text);
}

/** Removes entries whose paths are gone and, beyond the maximum, the oldest of processes that ended. */
function makeRoom(folder: string, own: string): void {
  const files = entryFiles(folder).filter((file) => file !== own);
  const ended = files.flatMap((file) => {
    const entry = readEntry(file);
    if (entry && isSameProcess(entry.pid, entry.started)) return [];
    return [{ file, isUsed: entry?.paths.some((path) => existsSync(path)) ?? false }];
  });
  const kept = ended.filter(({ isUsed }) => isUsed).map(({ file }) => file);
  const atMs = new Map(kept.map((file) => [file, modifiedMs(file)]));
  kept.sort((a, b) => (atMs.get(a) ?? 0) - (atMs.get(b) ?? 0));
  const live = files.length - ended.length;
  const excess = Math.max(0, live + kept.length + 1 - MAX_ENTRIES);
  const unused = ended.filter(({ isUsed }) => !isUsed).map(({ file }) => file);
  for (const file of [...unused, ...kept.slice(0, excess)]) rmSync(file, { force: true });
  if (live >= MAX_ENTRIES)
    throw new Error(
      `${folder} has entries of ${live} running processes, and ${MAX_ENTRIES} at most`,
    );
}

function entryFiles(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => name.endsWith(".json"))
      .map((name) => join(folder, name));
  } catch {
    return []; // No process of this user has registered anything.
  }
}

/** Undefined if it is missing or damaged. */
function readEntry(file: string): Entry | undefined {
  try {
    if (statSync(file).size > MAX_ENTRY_BYTES) return undefined;
    const { pid, started, paths } = JSON.parse(readFileSync(file, "utf8")) as Partial<Entry>;
    if (typeof pid !== "number" || !Array.isArray(paths)) return undefined;
    return { pid, started, paths: paths.filter((path) => typeof path === "string") };
  } catch {
    return undefined;
  }
}

function modifiedMs(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
