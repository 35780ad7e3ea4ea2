import { setTimeout as sleep } from "node:timers/promises";
import type { Heddle } from "@heddle/client/heddle";

/** Follows the event log from its beginning, across masters: each event must come once, in order. */
export class LogFollower {
  /** Events that came in another order, as `expected N, got M`. */
  readonly faults: string[] = [];
  #next = 0;

  /** The events that came in order. */
  get count(): number {
    return this.#next;
  }

  async run(heddle: Heddle, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const after = this.#next === 0 ? undefined : String(this.#next - 1);
      const from = after === undefined ? { since: "2000-01-01T00:00:00Z" } : { after };
      try {
        for await (const { sequence } of heddle.events.follow({ ...from, signal })) {
          if (Number(sequence) !== this.#next) {
            this.faults.push(`expected ${this.#next}, got ${sequence}`);
          }
          this.#next = Number(sequence) + 1;
        }
      } catch {
        // No master answers for longer than the client waits.
        await sleep(1_000);
      }
    }
  }
}
