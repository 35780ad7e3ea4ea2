import type { Clock } from "@heddle/base/clock";
import type { ProcessEntry } from "./process-tree.ts";

/** After this time a process without a mark gets none any more, and keeps its user. */
const SETTLED_MS = 10_000;

interface Unmarked {
  readonly startTime: number;
  readonly user: number;
  /** When it was first found like this. */
  readonly sinceMs: number;
}

/** Processes without a mark, as earlier scans found them: most of a machine's run for long. */
export class UnmarkedProcesses {
  readonly #clock: Pick<Clock, "monotonicMs">;
  /** Keyed by pid. */
  readonly #known = new Map<number, Unmarked>();

  constructor(clock: Pick<Clock, "monotonicMs">) {
    this.#clock = clock;
  }

  /** The user of a process that need not be read again. */
  settledUser({ pid, startTime }: ProcessIdentity): number | undefined {
    const known = this.#known.get(pid);
    if (known?.startTime !== startTime) return undefined;
    return this.#clock.monotonicMs() - known.sinceMs >= SETTLED_MS ? known.user : undefined;
  }

  /** What a scan has read; `user` is undefined for a process with a mark. */
  note({ pid, startTime }: ProcessIdentity, user: number | undefined): void {
    const known = this.#known.get(pid);
    if (user === undefined) this.#known.delete(pid);
    else if (known?.startTime !== startTime || known.user !== user) {
      this.#known.set(pid, { startTime, user, sinceMs: this.#clock.monotonicMs() });
    }
  }

  /** Forgets all processes but these. */
  keepOnly(pids: ReadonlyMap<number, unknown>): void {
    for (const pid of this.#known.keys()) if (!pids.has(pid)) this.#known.delete(pid);
  }
}

type ProcessIdentity = Pick<ProcessEntry, "pid" | "startTime">;
