import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { AppError, toAppError } from "@heddle/base/errors";
import type { Logger } from "@heddle/observability/logger";
import { readEventHashesMethod, readEventsMethod } from "@heddle/rpc/proto";
import type { ControlPlane } from "../control-plane.ts";
import type { MasterPeers } from "../master-peers.ts";
import type { RecordedEvents } from "../recorded-events.ts";

const POLL_MS = 500;
const DEADLINE_MS = 10_000;
/** Events of one answer; their bytes are bounded too. */
export const MAX_READ = 1_024;
/** Hashes of one answer: 1 MiB. */
export const MAX_HASHES = 32_768;

interface CatchUpParts {
  readonly control: Pick<ControlPlane, "group">;
  readonly events: RecordedEvents;
  readonly peers: Pick<MasterPeers, "get">;
  readonly log: Logger;
}

/**
 * Fetches events that this master lacks from the others: after a snapshot of another master has
 * replaced its state. The next signed checkpoint shows whether they are the right ones.
 */
export class EventCatchUp {
  readonly #parts: CatchUpParts;
  readonly #stop = new AbortController();
  #lastLogged = "";
  /** Since the start of this process. */
  fetched = 0;

  constructor(parts: CatchUpParts) {
    this.#parts = parts;
  }

  /** Throws `conflict` where no other master can have what is missing. */
  check(): void {
    const { control, events } = this.#parts;
    if (events.missing === 0 || control.group?.isAlone() === false) return;
    const message = `${events.missing} events are missing in the event log of this master, and there is no other master to fetch them from. Put the folder "events" of its data directory back, or run \`heddle cluster recover\`, which begins another event log.`;
    throw new AppError("conflict", message);
  }

  async run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#fetchAll().catch((error: unknown) => this.#note(toAppError(error).message));
      await abortableDelay(POLL_MS, signal, { ref: false });
    }
  }

  close(): void {
    this.#stop.abort();
  }

  async #fetchAll(): Promise<void> {
    const { control, events } = this.#parts;
    while (events.missing > 0 && !this.#stop.signal.aborted) {
      const { id, members = [] } = control.group?.status() ?? {};
      const others = members.filter((member) => member.id !== id);
      let isFetched = false;
      for (const { name, address } of others) {
        isFetched = await this.#fetch(address).catch((error: unknown) => {
          this.#note(`${name}: ${toAppError(error).message}`);
          return false;
        });
        if (isFetched) break;
      }
      if (!isFetched) return;
    }
  }

  /** Whether the master had some of what is missing. */
  async #fetch(address: string): Promise<boolean> {
    const { events, peers } = this.#parts;
    if (events.next < events.firstKept) await this.#beginAtKept(address);
    const { next: first, origin, missing } = events;
    const range = { origin, first, limit: Math.min(missing, MAX_READ) };
    const times = { deadlineMs: DEADLINE_MS };
    const { entries } = await peers.get(address).unary(readEventsMethod, range, times);
    await events.addFetched(first, entries);
    this.fetched += entries.length;
    return entries.length > 0;
  }

  /** Takes the hashes of the events that no master keeps any more. */
  #beginAtKept(address: string): Promise<void> {
    const { events, peers } = this.#parts;
    const { origin } = events;
    const peer = peers.get(address);
    return events.beginAtKept(async (first) => {
      const range = { origin, first, limit: MAX_HASHES };
      const times = { deadlineMs: DEADLINE_MS };
      return (await peer.unary(readEventHashesMethod, range, times)).hashes;
    });
  }

  #note(why: string): void {
    if (why === this.#lastLogged) return;
    this.#lastLogged = why;
    const { missing } = this.#parts.events;
    this.#parts.log.warn({ missing, why }, "events could not be fetched from another master yet");
  }
}
