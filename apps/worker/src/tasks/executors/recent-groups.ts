import type { ProcessScan } from "./process-scan.ts";

/** A scan serves every watched task for this time, or for a multiple of its duration. */
const RECENT_MS = 400;
const RECENT_TIMES = 20;
/** And at most for this one. */
const MAX_RECENT_MS = 5_000;

interface GroupSource {
  scan(): Promise<ProcessScan>;
  /** How many processes the machine has started; undefined where it does not say. */
  started(): number | undefined;
  nowMs(): number;
}

/** A scan and the time until which it serves; another one is due then, or once a process started. */
interface KeptScan {
  readonly scan: Promise<ProcessScan>;
  readonly started: number | undefined;
  dueMs: number;
  untilMs: number;
}

/**
 * The groups of processes for callers that ask often. Reading every process of a machine is costly,
 * so a scan serves until it may lack a process.
 */
export class RecentGroups {
  readonly #source: GroupSource;
  #kept: KeptScan | undefined;

  constructor(source: GroupSource) {
    this.#source = source;
  }

  get(): Promise<ProcessScan> {
    if (this.#kept && this.#serves(this.#kept)) return this.#kept.scan;
    const beganMs = this.#source.nowMs();
    const started = this.#source.started();
    const scan = this.#source.scan();
    const kept = { scan, started, dueMs: Number.POSITIVE_INFINITY, untilMs: 0 };
    const keep = () => {
      const endedMs = this.#source.nowMs();
      const restMs = Math.max(RECENT_MS, RECENT_TIMES * (endedMs - beganMs));
      kept.dueMs = endedMs + Math.min(restMs, MAX_RECENT_MS);
      kept.untilMs = endedMs + MAX_RECENT_MS;
    };
    scan.then(keep, keep);
    this.#kept = kept;
    return scan;
  }

  #serves({ started, dueMs, untilMs }: KeptScan): boolean {
    const nowMs = this.#source.nowMs();
    if (nowMs < dueMs) return true;
    return nowMs < untilMs && started !== undefined && this.#source.started() === started;
  }
}
