import { removeBeneath, replaceFileBeneath } from "@heddle/base/beneath";
import type { Log } from "@heddle/observability/logger";

/** What a disk answers until it has room or is repaired. */
const LASTING_ERRORS: ReadonlySet<string | undefined> = new Set([
  "ENOSPC",
  "EDQUOT",
  "EROFS",
  "EIO",
]);
const PROBE_MS = 2_000;
const PROBE_NAME = ".probe";
/** More than the records of a task's start. */
const PROBE_BYTES = 256 * 1024;

/**
 * Why this worker can store nothing for tasks. Each task that it took would be lost at once, so
 * it reports no executors until a file can be written again.
 */
export class DiskFault {
  readonly #root: string;
  readonly #log: Log;
  #reason = "";
  #timer: NodeJS.Timeout | undefined;
  #onChange: (() => void) | undefined;

  /** `root` is the folder of all tasks. */
  constructor(root: string, log: Log) {
    this.#root = root;
    this.#log = log;
  }

  /** Empty where files can be written. */
  get reason(): string {
    return this.#reason;
  }

  /** Called when the reason has changed. */
  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  /** A file of a task could not be written. Returns whether that is a fault of the disk. */
  note(error: unknown): boolean {
    const { code, message } = error as NodeJS.ErrnoException;
    if (!LASTING_ERRORS.has(code)) return false;
    if (this.#reason === "") {
      this.#set(`its disk takes no files: ${message}; make room below ${this.#root}`);
      this.#probeLater();
    }
    return true;
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  #probeLater(): void {
    this.#timer = setTimeout(() => void this.#probe(), PROBE_MS).unref();
  }

  async #probe(): Promise<void> {
    try {
      await replaceFileBeneath(this.#root, PROBE_NAME, "0".repeat(PROBE_BYTES));
      this.#set("");
    } catch {
      this.#probeLater();
    }
    await removeBeneath(this.#root, PROBE_NAME).catch(() => undefined);
  }

  #set(reason: string): void {
    this.#reason = reason;
    if (reason === "") this.#log.info({}, "tasks can be taken again: the disk takes files");
    else this.#log.error({ reason }, "no task is taken");
    this.#onChange?.();
  }
}
