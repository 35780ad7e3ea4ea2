import type { Clock } from "@heddle/base/clock";
import type { NodeView } from "./node-directory.ts";

/** A gap between two looks that is longer than this says that this process itself stood still. */
const STALL_MS = 1_000;

/** How long nodes have been silent, by the monotonic clock of the master that looks. */
export class NodeLivenessTracker {
  readonly #clock: Clock;
  /** By node: when it was last heard of; from the first look on. */
  readonly #heardMs = new Map<string, number>();
  #lookedMs: number | undefined;
  /** When the first look began. */
  #beganMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Forgets when nodes were heard of: another master led since, and knew better. */
  reset(): void {
    this.#heardMs.clear();
    this.#lookedMs = undefined;
  }

  /** A look begins. While this process stood still, nobody could be heard: that is no node's silence. */
  begin(): void {
    const nowMs = this.#clock.monotonicMs();
    if (this.#lookedMs === undefined) this.#beganMs = nowMs;
    const stalledMs = this.#lookedMs === undefined ? 0 : nowMs - this.#lookedMs;
    if (stalledMs > STALL_MS) {
      for (const [id, heardMs] of this.#heardMs) {
        this.#heardMs.set(id, Math.min(nowMs, heardMs + stalledMs));
      }
    }
    this.#lookedMs = nowMs;
  }

  /** Whether the node was heard of since the first look. */
  isHeard(view: NodeView): boolean {
    return this.#seenMs(view) >= this.#beganMs;
  }

  #seenMs({ lastSeenMs }: NodeView): number {
    return this.#clock.monotonicMs() - Math.max(0, this.#clock.wallMs() - lastSeenMs);
  }

  /** How long the node has been silent, from the first time that it was looked for. */
  of(id: string, view: NodeView | undefined): number {
    const nowMs = this.#clock.monotonicMs();
    const seenMs = view && this.#seenMs(view);
    const heardMs = Math.max(this.#heardMs.get(id) ?? seenMs ?? nowMs, seenMs ?? 0);
    this.#heardMs.set(id, heardMs);
    return nowMs - heardMs;
  }

  /** Forgets all other nodes. */
  keepOnly(ids: ReadonlySet<string>): void {
    for (const id of this.#heardMs.keys()) if (!ids.has(id)) this.#heardMs.delete(id);
  }
}
