import { randomUUID } from "node:crypto";
import {
  closeSync,
  constants,
  type Dirent,
  fstatSync,
  openSync,
  type Stats,
  statSync,
} from "node:fs";
import {
  chmod,
  type FileHandle,
  lstat,
  mkdir,
  open,
  opendir,
  rename,
  rmdir,
  stat,
  unlink,
} from "node:fs/promises";
import { join, sep } from "node:path";
import { AppError } from "./errors.ts";

/**
 * Files below a directory whose content a task controls. Where there is no /proc (macOS, Windows),
 * paths are used, and a component that is replaced during the walk is not detected.
 *
 * - Each component is opened relative to the descriptor of its parent, and no link is followed. A
 *   directory that is replaced with a link between check and use is an error.
 * - Only regular files are opened, and an open never waits for the other end of a pipe.
 * - A file that its folder's user only linked there is refused. Where `fs.protected_hardlinks` is
 *   0, a task can give any file of the disk a second name.
 */

const { O_DIRECTORY, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
const FOLDER = O_RDONLY | O_DIRECTORY;
const LINKLESS = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
const hasProc = process.platform === "linux";
/** The maximum number of entries visited below one directory. */
const MAX_ENTRIES = 100_000;
const MAX_DEPTH = 64;
/** Deeper entries are moved up before they are removed, as each level holds a descriptor. */
const MAX_REMOVAL_DEPTH = 16;
/** Passes over a directory that is not empty after one: it is deep, or was filled meanwhile. */
const MAX_ROUNDS = 100_000;
/** Opens an unreadable directory, to change its mode. */
const O_PATH = 0o10000000;
const OWNER_MAY_ALL = 0o700;
/** The unit of `stat`'s blocks, on every file system. */
const BLOCK_BYTES = 512;
const LIST_ENTRIES = 256;

/** A regular file below a directory, by its path from there. */
export interface FileBeneath {
  readonly name: string;
  readonly bytes: number;
}

/** Opens a regular file; throws `invalid_value` for a pipe or a device, EISDIR for a directory, ELOOP or ENOTDIR for a link. */
export async function openFileBeneath(
  root: string,
  path: string,
  flags: number = O_RDONLY,
  mode = 0o600,
): Promise<FileHandle> {
  const { parent, name } = split(path);
  const openEntry = async (entry: string, statFolder: () => Promise<Stats>) => {
    const file = await open(entry, flags | LINKLESS, mode);
    try {
      const found = await file.stat();
      if (!found.isFile()) throw notRegular(path, found);
      if (found.nlink > 1) checkOwner(path, found, await statFolder());
      return file;
    } catch (error) {
      await file.close();
      throw error;
    }
  };
  // The root is never replaced, so what is in it needs no descriptor of it.
  if (parent.length === 0) return openEntry(join(root, name), () => stat(root));
  return inFolder(root, parent, (folder) => openEntry(folder.at(name), () => folder.stat()));
}

/** The content of a regular file; undefined if it has more bytes, or grows meanwhile. */
export async function readFileBeneath(
  root: string,
  path: string,
  maxBytes: number,
): Promise<Buffer | undefined> {
  const file = await openFileBeneath(root, path);
  try {
    const { size } = await file.stat();
    if (size > maxBytes) return undefined;
    const bytes = Buffer.alloc(size + 1);
    for (let length = 0; length <= size; ) {
      const { bytesRead } = await file.read(bytes, length, bytes.byteLength - length, length);
      if (bytesRead === 0) return bytes.subarray(0, length);
      length += bytesRead;
    }
    return undefined;
  } finally {
    await file.close();
  }
}

/** A blocking `openFileBeneath`; returns the descriptor, which the caller closes. */
export function openFileBeneathSync(
  root: string,
  path: string,
  flags: number = O_RDONLY,
  mode = 0o600,
): number {
  const { parent, name } = split(path);
  const openEntry = (entry: string, statFolder: () => Stats) => {
    const file = openSync(entry, flags | LINKLESS, mode);
    try {
      const found = fstatSync(file);
      if (!found.isFile()) throw notRegular(path, found);
      if (found.nlink > 1) checkOwner(path, found, statFolder());
      return file;
    } catch (error) {
      closeSync(file);
      throw error;
    }
  };
  if (parent.length === 0) return openEntry(join(root, name), () => statSync(root));
  let at = openSync(root, FOLDER);
  let place = root;
  try {
    for (const segment of parent) {
      const next = openSync(childOf(at, place, segment), FOLDER | LINKLESS);
      closeSync(at);
      at = next;
      place = join(place, segment);
    }
    return openEntry(childOf(at, place, name), () => fstatSync(at));
  } finally {
    closeSync(at);
  }
}

/** Creates the directory and its parents, up to the root, which exists. */
export async function makeDirectoryBeneath(
  root: string,
  path: string,
  mode = 0o700,
): Promise<void> {
  let folder = await OpenFolder.open(root);
  try {
    for (const segment of segmentsOf(path)) {
      await mkdir(folder.at(segment), { mode }).catch(unless("EEXIST"));
      const next = await folder.child(segment);
      await folder.close();
      folder = next;
    }
  } finally {
    await folder.close();
  }
}

/**
 * Calls `work` with a path of one entry that stays in its directory even if that is renamed: to
 * rename, remove or chmod.
 */
export function atEntryBeneath<Result>(
  root: string,
  path: string,
  work: (entry: string) => Promise<Result>,
): Promise<Result> {
  const { parent, name } = split(path);
  return inFolder(root, parent, (folder) => work(folder.at(name)));
}

/** Writes the file atomically; it is on disk when this resolves. */
export function replaceFileBeneath(
  root: string,
  path: string,
  content: string | Uint8Array,
): Promise<void> {
  return atEntryBeneath(root, path, async (entry) => {
    const draft = `${entry}.new`;
    // With "wx" an existing file or link is never written to or through.
    await unlink(draft).catch(unless("ENOENT"));
    const file = await open(draft, "wx", 0o600);
    try {
      try {
        await file.writeFile(content);
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(draft, entry);
    } catch (error) {
      // What is there of it would keep a full disk full.
      await unlink(draft).catch(() => undefined);
      throw error;
    }
  });
}

/** All regular files below a directory, sorted by name; links and special files are skipped. */
export async function filesBeneath(root: string, path: string): Promise<FileBeneath[]> {
  const found: FileBeneath[] = [];
  await walkFiles({ root, path, maxEntries: MAX_ENTRIES }, (name, { size }) => {
    found.push({ name, bytes: size });
  });
  return found;
}

/**
 * Disk usage of the files below a directory in bytes. Throws `invalid_value` if they are too many.
 */
export async function diskUseBeneath(
  root: string,
  path: string,
  maxEntries: number,
): Promise<number> {
  let bytes = 0;
  await walkFiles({ root, path, maxEntries }, (_name, { blocks }) => {
    bytes += blocks * BLOCK_BYTES;
  });
  return bytes;
}

async function walkFiles(
  where: { readonly root: string; readonly path: string; readonly maxEntries: number },
  visit: (name: string, found: Stats) => void,
): Promise<void> {
  const { root, path, maxEntries } = where;
  let count = 0;
  const walk = async (folder: OpenFolder, prefix: string, depth: number): Promise<void> => {
    if (depth > MAX_DEPTH) throw tooMuch(path, `${MAX_DEPTH} levels of folders`);
    const entries: { name: string; isFolder: boolean }[] = [];
    for await (const entry of folder.entries()) {
      if (++count > maxEntries) throw tooMuch(path, `${maxEntries} entries`);
      if (entry.isFile() || entry.isDirectory())
        entries.push({ name: entry.name, isFolder: entry.isDirectory() });
    }
    for (const { name, isFolder } of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      if (isFolder) {
        await within(await folder.child(name), (child) =>
          walk(child, `${prefix}${name}/`, depth + 1),
        ).catch(unless("ENOENT", "ENOTDIR", "ELOOP"));
      } else {
        const found = await lstat(folder.at(name)).catch(unless("ENOENT"));
        if (found?.isFile()) visit(`${prefix}${name}`, found);
      }
    }
  };
  await inFolder(root, segmentsOf(path), (folder) => walk(folder, "", 0));
}

/**
 * Removes an entry and its subtree, of any depth, mode or name; a missing one counts as removed.
 * Links are removed, not followed.
 */
export async function removeBeneath(root: string, path: string): Promise<void> {
  const { parent, name } = split(path);
  await inFolder(root, parent, (folder) => remove(folder, Buffer.from(name))).catch(
    unless("ENOENT"),
  );
}

/** `top`: the entry whose removal was requested; entries that are too deep are moved into it. */
async function remove(
  folder: OpenFolder,
  name: Buffer,
  top: OpenFolder | undefined = undefined,
  depth = 0,
): Promise<void> {
  for (let round = 0; ; round++) {
    const child = await folder.enter(name).catch(unless("ENOENT", "ENOTDIR", "ELOOP"));
    if (!child) return unlink(folder.entry(name)).catch(unless("ENOENT"));
    const isTooDeep = top !== undefined && depth > MAX_REMOVAL_DEPTH;
    await within(child, async () => {
      if (isTooDeep) return;
      for await (const entry of child.rawEntries()) {
        const isGone = !entry.isFolder && (await isUnlinked(child.entry(entry.name)));
        if (!isGone) await remove(child, entry.name, top ?? child, depth + 1);
      }
    });
    if (isTooDeep) return rename(folder.entry(name), top.at(`.deep-${randomUUID()}`));
    try {
      return await rmdir(folder.entry(name)).catch(unless("ENOENT"));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if ((code !== "ENOTEMPTY" && code !== "EEXIST") || round >= MAX_ROUNDS) throw error;
    }
  }
}

/** False if the entry has become a directory meanwhile. */
async function isUnlinked(path: Buffer): Promise<boolean> {
  try {
    await unlink(path);
    return true;
  } catch (error) {
    return unless("EISDIR", "EPERM", "ENOENT")(error) !== undefined;
  }
}

/** An open directory. */
class OpenFolder {
  readonly #handle: FileHandle;
  readonly #path: string;

  private constructor(handle: FileHandle, path: string) {
    this.#handle = handle;
    this.#path = path;
  }

  /** The root is the operator's: links in its own path are followed. */
  static async open(path: string): Promise<OpenFolder> {
    return new OpenFolder(await open(path, FOLDER), path);
  }

  at(name: string): string {
    return childOf(this.#handle.fd, this.#path, name);
  }

  async child(name: string): Promise<OpenFolder> {
    const handle = await open(this.at(name), FOLDER | LINKLESS);
    return new OpenFolder(handle, join(this.#path, name));
  }

  /** Makes a directory of this process's user readable if needed. */
  async enter(name: Buffer): Promise<OpenFolder> {
    const flags = FOLDER | LINKLESS;
    const path = this.entry(name);
    const handle = await open(path, flags).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== "EACCES" || !hasProc) throw error;
      const barred = await open(path, flags | O_PATH);
      try {
        await chmod(`/proc/self/fd/${barred.fd}`, OWNER_MAY_ALL);
      } finally {
        await barred.close();
      }
      return open(path, flags);
    });
    try {
      const found = await handle.stat();
      const isBarred = (found.mode & OWNER_MAY_ALL) !== OWNER_MAY_ALL;
      if (isBarred && found.uid === process.getuid?.()) await handle.chmod(OWNER_MAY_ALL);
    } catch (error) {
      await handle.close();
      throw error;
    }
    return new OpenFolder(handle, join(this.#path, name.toString()));
  }

  /** The path of an entry whose name need not be UTF-8. */
  entry(name: Buffer): Buffer {
    return Buffer.concat([Buffer.from(`${this.#place}${sep}`), name]);
  }

  stat(): Promise<Stats> {
    return this.#handle.stat();
  }

  entries() {
    return listOf(this.#place, "utf8");
  }

  async *rawEntries(): AsyncGenerator<{ readonly name: Buffer; readonly isFolder: boolean }> {
    for await (const entry of listOf(this.#place, "buffer" as BufferEncoding)) {
      yield { name: entry.name as unknown as Buffer, isFolder: entry.isDirectory() };
    }
  }

  get #place(): string {
    return hasProc ? `/proc/self/fd/${this.#handle.fd}` : this.#path;
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

/** Streams the entries: a directory may have millions. */
async function* listOf(path: string, encoding: BufferEncoding): AsyncGenerator<Dirent> {
  yield* await opendir(path, { encoding, bufferSize: LIST_ENTRIES });
}

async function within<Result>(
  folder: OpenFolder,
  work: (folder: OpenFolder) => Promise<Result>,
): Promise<Result> {
  try {
    return await work(folder);
  } finally {
    await folder.close();
  }
}

async function inFolder<Result>(
  root: string,
  segments: readonly string[],
  work: (folder: OpenFolder) => Promise<Result>,
): Promise<Result> {
  let folder = await OpenFolder.open(root);
  try {
    for (const segment of segments) {
      const next = await folder.child(segment);
      await folder.close();
      folder = next;
    }
    return await work(folder);
  } finally {
    await folder.close();
  }
}

function childOf(descriptor: number, path: string, name: string): string {
  return hasProc ? `/proc/self/fd/${descriptor}/${name}` : join(path, name);
}

function split(path: string): { parent: readonly string[]; name: string } {
  const segments = segmentsOf(path);
  return { parent: segments.slice(0, -1), name: segments.at(-1) as string };
}

function segmentsOf(path: string): readonly string[] {
  const segments = path.split("/");
  if (segments.every((each) => each !== "" && each !== "." && each !== ".." && !/\0/.test(each)))
    return segments;
  const message = `${JSON.stringify(path)} is not a path below a directory: give names with / between`;
  throw new AppError("invalid_value", message);
}

function notRegular(path: string, found: Stats): Error {
  if (found.isDirectory()) return Object.assign(new Error(`EISDIR: ${path}`), { code: "EISDIR" });
  return new AppError("invalid_value", `${path} is not a regular file`);
}

/** Refuses a hard link of another user. No task can make one in a folder of root or of this user. */
function checkOwner(path: string, file: Stats, folder: Stats): void {
  const isTrusted = folder.uid === 0 || folder.uid === process.getuid?.();
  if (isTrusted || file.uid === folder.uid) return;
  const message = `${path} is a hard link to a file of another user than its folder's: copy the file instead`;
  throw new AppError("invalid_value", message);
}

function tooMuch(path: string, most: string): AppError {
  return new AppError("invalid_value", `${path} has more than ${most}`);
}

function unless(...codes: readonly string[]): (error: unknown) => undefined {
  return (error) => {
    if (!codes.includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
    return undefined;
  };
}
