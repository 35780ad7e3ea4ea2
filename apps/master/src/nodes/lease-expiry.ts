import type { Clock } from "@heddle/base/clock";
import type { NodeLoss } from "@heddle/control/jobs/records/commands";
import type { NodeRecord } from "@heddle/control/jobs/records/records";

interface SeenLoss {
  readonly lostIndex: number;
  readonly atMs: number;
}

/**
 * When the leases of lost nodes have certainly expired, by this master's monotonic clock. Clocks of
 * two masters are not comparable, so a new leader waits a whole lease from its first check.
 */
export class LeaseExpiry {
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #waitMs: number;
  /** Keyed by node: its loss, and when this leader first saw it. */
  #seen = new Map<string, SeenLoss>();

  constructor(clock: Pick<Clock, "monotonicMs">, waitMs: number) {
    this.#clock = clock;
    this.#waitMs = waitMs;
  }

  /** Another master leads. */
  reset(): void {
    this.#seen.clear();
  }

  /** The losses whose leases have expired: no leader renews those of a node that counts as lost. */
  over(nodes: Iterable<NodeRecord>): NodeLoss[] {
    const nowMs = this.#clock.monotonicMs();
    const seen = new Map<string, SeenLoss>();
    const over: NodeLoss[] = [];
    for (const { offer, lostIndex } of nodes) {
      if (lostIndex === undefined) continue;
      const known = this.#seen.get(offer.id);
      const loss = known?.lostIndex === lostIndex ? known : { lostIndex, atMs: nowMs };
      seen.set(offer.id, loss);
      if (nowMs - loss.atMs >= this.#waitMs) over.push({ nodeId: offer.id, lostIndex });
    }
    this.#seen = seen;
    return over;
  }
}
