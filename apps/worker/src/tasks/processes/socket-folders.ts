import { createHash } from "node:crypto";
import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { LaunchError } from "../executors/executor.ts";

/** The system allows 107 bytes for a socket's path; the rest is for the name of the folder and the socket. */
const MAX_ROOT_BYTES = 70;
const MODE = 0o700;

/**
 * The folders in which the tasks of one attempt meet on this node. Only the attempt's own tasks reach a
 * folder: it belongs to their user, and Landlock hides it from tasks of other jobs.
 */
export class SocketFolders {
  readonly #roots: readonly string[];
  readonly #prefix: string;
  readonly #folders = new Map<string, { readonly path: string; tasks: number }>();

  /** `roots`: where folders may lie, the preferred ones first. */
  constructor(nodeId: string, roots: readonly string[]) {
    this.#roots = roots;
    const node = createHash("sha256").update(nodeId).digest("hex").slice(0, 8);
    this.#prefix = `heddle-sockets-${node}-`;
  }

  /** The attempt's folder, made for its first task. To be released once for each call. */
  acquire(attempt: string): string {
    const known = this.#folders.get(attempt);
    const path = known?.path ?? this.#make();
    this.#folders.set(attempt, { path, tasks: (known?.tasks ?? 0) + 1 });
    return path;
  }

  /** Takes over the folder of a task that an earlier process has started; false where it made none. */
  adopt(attempt: string, path: string): boolean {
    if (!this.#isOwn(path)) return false;
    const known = this.#folders.get(attempt);
    this.#folders.set(attempt, { path, tasks: (known?.tasks ?? 0) + 1 });
    return true;
  }

  release(attempt: string): void {
    const known = this.#folders.get(attempt);
    if (!known) return;
    known.tasks -= 1;
    if (known.tasks > 0) return;
    this.#folders.delete(attempt);
    rmSync(known.path, { recursive: true, force: true });
  }

  /** Removes folders of this node that no task uses: its earlier process could not. */
  sweep(): void {
    const used = new Set([...this.#folders.values()].map(({ path }) => path));
    for (const root of this.#roots) {
      for (const path of entriesOf(root).map((name) => join(root, name))) {
        if (this.#isOwn(path) && !used.has(path)) rmSync(path, { recursive: true, force: true });
      }
    }
  }

  #make(): string {
    const root = this.#roots.find((path) => Buffer.byteLength(path) <= MAX_ROOT_BYTES);
    if (root === undefined) {
      const message = `the tasks' sockets need a folder with a path of at most ${MAX_ROOT_BYTES} bytes, and ${this.#roots.join(" and ")} are longer: give the worker a shorter --data`;
      throw new LaunchError("LaunchFailed", message);
    }
    mkdirSync(root, { recursive: true, mode: MODE });
    return mkdtempSync(join(root, this.#prefix));
  }

  /** A forged task record must not make this worker remove another folder. */
  #isOwn(path: string): boolean {
    if (!this.#roots.includes(dirname(path)) || !basename(path).startsWith(this.#prefix))
      return false;
    return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
  }
}

function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return []; // Nothing has been made there.
  }
}
