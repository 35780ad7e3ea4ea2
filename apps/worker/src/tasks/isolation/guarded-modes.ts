import { chmodSync, lstatSync } from "node:fs";

const PERIOD_MS = 1_000;
const MAX_PATHS = 4_096;
const OF_OTHERS = 0o077;

/**
 * Takes back what opens hidden paths to other accounts. For tasks with the worker's user and mounts,
 * to which Landlock does not refuse chmod: such a path is open for a second at most.
 */
export class GuardedModes {
  readonly #first = new Map<string, number>();
  readonly #onFault: (message: string) => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(onFault: (message: string) => void) {
    this.#onFault = onFault;
  }

  /** From now on the paths keep the modes that they have, or get when they are made. */
  add(paths: readonly string[]): void {
    for (const path of paths.slice(0, MAX_PATHS - this.#first.size)) this.#checkPath(path);
    this.#timer ??= setInterval(() => this.check(), PERIOD_MS).unref();
  }

  check(): void {
    for (const path of this.#first.keys()) this.#checkPath(path);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #checkPath(path: string): void {
    const found = modeOf(path);
    if (found === undefined) return;
    const first = this.#first.get(path);
    if (first === undefined) {
      this.#first.set(path, found);
      if (found & OF_OTHERS)
        this.#onFault(`${path} has secrets and the mode ${octal(found)}: chmod go= ${path}`);
      return;
    }
    if ((found & ~first & OF_OTHERS) === 0) return;
    const change = `the mode of ${path}, which has secrets, became ${octal(found)}`;
    try {
      chmodSync(path, first);
      this.#onFault(`${change}; it is ${octal(first)} again: a task may have done it`);
    } catch (error) {
      this.#onFault(`${change} and could not be set back: ${(error as Error).message}`);
    }
  }
}

/** Undefined of what is missing, or belongs to another user, whose mode tasks cannot change. */
function modeOf(path: string): number | undefined {
  try {
    const { uid, mode } = lstatSync(path);
    return uid === process.getuid?.() ? mode & 0o7777 : undefined;
  } catch {
    return undefined;
  }
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, "0");
}
