import { processActivity } from "@heddle/base/process/process-activity";

const CHECK_MS = 1_000;
/** Checks in a row between which the process has done nothing. */
const HUNG_CHECKS = 5;

interface HangWatchOptions {
  readonly pid: number | undefined;
  /** Whether the process has something to do. */
  readonly hasWork: () => boolean;
  readonly onHang: (forMs: number) => void;
}

/**
 * Notices a process that has work and gets no further, as one that was stopped. A process that computes,
 * or waits for a disk or a processor, is not taken for one, however long that takes. It counts checks and
 * not time, so that a stall of its own ends no other process. Without /proc it notices nothing.
 */
export class HangWatch {
  readonly #options: HangWatchOptions;
  readonly #timer: NodeJS.Timeout;
  #cpuTicks = -1;
  #idleChecks = 0;

  constructor(options: HangWatchOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#check(), CHECK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #check(): void {
    const { pid, hasWork, onHang } = this.#options;
    const activity = hasWork() ? processActivity(pid) : undefined;
    const stands = activity !== undefined && !activity.isActive;
    this.#idleChecks = stands && activity.cpuTicks === this.#cpuTicks ? this.#idleChecks + 1 : 0;
    this.#cpuTicks = activity?.cpuTicks ?? -1;
    if (this.#idleChecks < HUNG_CHECKS) return;
    this.close();
    onHang(HUNG_CHECKS * CHECK_MS);
  }
}
