import { keepConnected } from "@heddle/base/async/keep-connected";
import type { Heddle } from "@heddle/client/heddle";
import type { ClusterEvent } from "@heddle/contracts/api/events";
import { useSyncExternalStore } from "react";

/** Events that are kept, the newest first. */
const MAX_EVENTS = 2_000;
/** Listeners are called at most this often. */
const PAUSE_MS = 250;
const BACKOFF = { baseMs: 500, maxMs: 5_000 };

type EventListener = (events: readonly ClusterEvent[]) => void;

/** The one event stream of this tab, from which all pages read. */
class LiveEvents {
  #events: readonly ClusterEvent[] = [];
  #fresh: ClusterEvent[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #listeners = new Set<EventListener>();

  /** Follows the cluster's events until the signal aborts; then those of the session are forgotten. */
  async follow(heddle: Heddle, signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.#forget(), { once: true });
    let after: string | undefined;
    const connect = async (onOpen: () => void): Promise<void> => {
      try {
        for await (const event of heddle.events.stream({ after, signal })) {
          if (signal.aborted) return;
          onOpen();
          after = event.id;
          this.#add(event);
        }
      } catch {
        // Other calls show what is wrong. A position that is no longer kept cannot be resumed.
        after = undefined;
      }
    };
    await keepConnected({ connect, backoff: BACKOFF, signal });
  }

  #forget(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#fresh = [];
    this.#events = [];
  }

  /** Calls the listener with the new events, the oldest first. */
  listen(listener: EventListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  readonly latest = (): readonly ClusterEvent[] => this.#events;

  #add(event: ClusterEvent): void {
    this.#fresh.push(event);
    this.#timer ??= setTimeout(() => this.#publish(), PAUSE_MS);
  }

  #publish(): void {
    this.#timer = undefined;
    const fresh = this.#fresh;
    this.#fresh = [];
    this.#events = [...fresh.toReversed(), ...this.#events].slice(0, MAX_EVENTS);
    for (const listener of this.#listeners) listener(fresh);
  }
}

export const liveEvents = new LiveEvents();

const subscribe = (listener: () => void) => liveEvents.listen(listener);

/** The events since the sign-in, the newest first. */
export function useLiveEvents(): readonly ClusterEvent[] {
  return useSyncExternalStore(subscribe, liveEvents.latest);
}
