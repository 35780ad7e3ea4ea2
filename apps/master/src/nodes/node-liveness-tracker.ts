import type { Clock } from "@heddle/base/clock";
import type { NodeView } from "./node-directory.ts";

/** A longer gap between two checks means that this process was stalled. */
const STALL_MS = 1_000;

/** How long nodes have been silent, by this master's monotonic clock. */
export class NodeLivenessTracker {
  readonly #clock: Clock;
  /** Keyed by node: its last report; from the first check on. */
  readonly #reportedMs = new Map<string, number>();
  #checkedMs: number | undefined;
  /** When the first check began. */
  #beganMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Forgets all reports: another master led since, and has newer ones. */
  reset(): void {
    this.#reportedMs.clear();
    this.#checkedMs = undefined;
  }

  /**
   * Starts a check. Reports could not arrive while this process was stalled, so that time does not
   * count as silence.
   */
  begin(): void {
    const nowMs = this.#clock.monotonicMs();
    if (this.#checkedMs === undefined) this.#beganMs = nowMs;
    const stalledMs = this.#checkedMs === undefined ? 0 : nowMs - this.#checkedMs;
    if (stalledMs > STALL_MS) {
      for (const [id, reportedMs] of this.#reportedMs) {
        this.#reportedMs.set(id, Math.min(nowMs, reportedMs + stalledMs));
      }
    }
    this.#checkedMs = nowMs;
  }

  /** Whether the node has reported since the first check. */
  isLive(view: NodeView): boolean {
    return this.#seenMs(view) >= this.#beganMs;
  }

  #seenMs({ lastSeenMs }: NodeView): number {
    return this.#clock.monotonicMs() - Math.max(0, this.#clock.wallMs() - lastSeenMs);
  }

  /** How long the node has been silent, counted from the first check on. */
  of(id: string, view: NodeView | undefined): number {
    const nowMs = this.#clock.monotonicMs();
    const seenMs = view && this.#seenMs(view);
    const reportedMs = Math.max(this.#reportedMs.get(id) ?? seenMs ?? nowMs, seenMs ?? 0);
    this.#reportedMs.set(id, reportedMs);
    return nowMs - reportedMs;
  }

  /** Drops all other nodes. */
  keepOnly(ids: ReadonlySet<string>): void {
    for (const id of this.#reportedMs.keys()) if (!ids.has(id)) this.#reportedMs.delete(id);
  }
}
