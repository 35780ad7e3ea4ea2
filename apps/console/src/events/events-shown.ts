import type { ClusterEvent } from "@heddle/contracts/api/events";

/** Kept events (oldest first) and live ones (newest first), each once, the newest first. */
export function eventsShown(
  kept: readonly ClusterEvent[],
  live: readonly ClusterEvent[],
  wanted: string,
): ClusterEvent[] {
  const known = new Set(kept.map(({ id }) => id));
  const all = [...live.filter(({ id }) => !known.has(id)), ...kept.toReversed()];
  const lower = wanted.trim().toLowerCase();
  return lower === "" ? all : all.filter((event) => textOf(event).includes(lower));
}

function textOf(event: ClusterEvent): string {
  const subject =
    event.type === "job"
      ? [event.job_id, event.name, event.project, event.failure?.message]
      : [event.node, event.node_name];
  return [event.type, event.state, event.why, ...subject].join(" ").toLowerCase();
}
