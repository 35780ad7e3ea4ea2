import { readFileSync, statSync } from "node:fs";
import { uptime } from "node:os";

/** Where clocks cannot be compared: how long after its last change a lease holds. */
const UNCOMPARED_MS = 60_000;

/**
 * The worker's lease as its file says. The clock of the boot is the worker's, but in a virtual
 * machine of a container's own, where only changes of the file are seen.
 */
export class WatchedLease {
  readonly #file: string;
  readonly #boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  #changed = "";
  #expiresAtMs = Number.NEGATIVE_INFINITY;

  constructor(file: string) {
    this.#file = file;
  }

  get isLive(): boolean {
    try {
      const { mtimeMs, ino } = statSync(this.#file);
      const changed = `${mtimeMs} ${ino}`;
      if (changed !== this.#changed) this.#read(changed);
    } catch {
      // What was read before counts.
    }
    return uptime() * 1_000 < this.#expiresAtMs;
  }

  #read(changed: string): void {
    const { boot, expiresAtMs } = JSON.parse(readFileSync(this.#file, "utf8")) as {
      readonly boot?: string;
      readonly expiresAtMs?: number;
    };
    this.#expiresAtMs =
      boot === this.#boot ? Number(expiresAtMs) : uptime() * 1_000 + UNCOMPARED_MS;
    this.#changed = changed;
  }
}
