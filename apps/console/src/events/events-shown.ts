import type { ClusterEvent } from "@heddle/contracts/api/events";

/** The events that the cluster has kept and that contain a text. */
export class KeptEvents {
  readonly #ids: ReadonlySet<string>;
  readonly #found: readonly ClusterEvent[];
  readonly #wanted: string;

  /** Takes them the oldest first. */
  constructor(kept: readonly ClusterEvent[], wanted: string) {
    this.#ids = new Set(kept.map(({ id }) => id));
    this.#wanted = wanted.trim().toLowerCase();
    this.#found = this.#search(kept.toReversed());
  }

  /** With live ones, which are the newest first: each once, the newest first. */
  withLive(live: readonly ClusterEvent[]): ClusterEvent[] {
    return [...this.#search(live.filter(({ id }) => !this.#ids.has(id))), ...this.#found];
  }

  #search(events: readonly ClusterEvent[]): readonly ClusterEvent[] {
    if (this.#wanted === "") return events;
    return events.filter((event) => textOf(event).includes(this.#wanted));
  }
}

function textOf(event: ClusterEvent): string {
  const subject =
    event.type === "job"
      ? [event.job_id, event.name, event.project, event.failure?.message]
      : [event.node, event.node_name];
  return [event.type, event.state, event.why, ...subject].join(" ").toLowerCase();
}
