import { readFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { bootClock, Lease } from "./lease.ts";
import { readJson, writeJson } from "./task-directory.ts";

/** How often the lease is looked at while tasks hang on it; it also is at each thing that needs it. */
const checkMs = 100;

interface Kept {
  readonly boot: string;
  readonly expiresAtMs: number;
  readonly term: number;
}

/**
 * The lease of this worker and the highest term it has heard, kept over its restarts. Whoever asks
 * whether it is live makes sure thereby that the tasks of a lease that is over have been ended.
 */
export class LeaseKeeper {
  readonly #path: string;
  readonly #boot: string;
  readonly #lease: Lease;
  readonly #listeners = new Set<() => void>();
  #isNeeded: () => boolean = () => false;
  #timer: NodeJS.Timeout | undefined;
  #term: number;
  #wasLive: boolean;
  #saving: Promise<void> = Promise.resolve();

  private constructor(path: string, boot: string, kept: Kept | undefined) {
    this.#path = path;
    this.#boot = boot;
    // The clock began anew when the machine did, and no task has outlived that.
    this.#lease = new Lease(bootClock, kept?.boot === boot ? kept.expiresAtMs : undefined);
    this.#term = kept?.term ?? 0;
    this.#wasLive = this.#lease.isLive;
  }

  static async open(directory: string): Promise<LeaseKeeper> {
    const path = join(directory, "lease.json");
    return new LeaseKeeper(path, bootId(), (await readJson(path)) as Kept | undefined);
  }

  get isLive(): boolean {
    const isLive = this.#lease.isLive;
    if (this.#wasLive && !isLive) {
      this.#wasLive = false;
      for (const listener of this.#listeners) listener();
    }
    return isLive;
  }

  get renewEveryMs(): number {
    return this.#lease.renewEveryMs;
  }

  onExpired(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Looks at the lease from now on, until nothing hangs on it: an idle worker is not woken. */
  watchWhile(isNeeded: () => boolean): void {
    this.#isNeeded = isNeeded;
    this.#timer ??= setInterval(() => this.#look(), checkMs).unref();
  }

  #look(): void {
    void this.isLive;
    if (this.#isNeeded()) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Throws `precondition_failed` for a leader of a term that is over. */
  async begin(term: number, leaseMs: number): Promise<void> {
    if (term < this.#term) {
      const message = `a leader of term ${this.#term} has been heard here: term ${term} is over`;
      throw new AppError("precondition_failed", message);
    }
    this.#lease.begin(leaseMs);
    if (term === this.#term) return;
    this.#term = term;
    await this.#save();
  }

  ask(): number {
    return this.#lease.ask();
  }

  async renew(request: number): Promise<void> {
    // What was killed stays so, but its death comes before the new lease.
    void this.isLive;
    this.#lease.renew(request);
    this.#wasLive = this.#lease.isLive;
    // On a disk that takes nothing the lease holds for this process alone: a later one ends the tasks.
    await this.#save().catch(() => {});
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#saving;
  }

  #save(): Promise<void> {
    const write = () =>
      writeJson(this.#path, {
        boot: this.#boot,
        expiresAtMs: this.#lease.expiresAtMs,
        term: this.#term,
      } satisfies Kept);
    this.#saving = this.#saving.then(write, write);
    return this.#saving;
  }
}

function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return "unknown"; // Without it, the time since the machine's start is all there is to go by.
  }
}
