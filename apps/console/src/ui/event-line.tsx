import type { ClusterEvent } from "@heddle/contracts/api/events";
import { Link } from "@tanstack/react-router";
import { formatTime } from "./format.ts";
import { StatusBadge } from "./status-badge.tsx";

/** One event: when, what it is about, and its new state. */
export function EventLine({ event }: { readonly event: ClusterEvent }) {
  return (
    <>
      <time dateTime={event.at}>{formatTime(event.at)}</time>
      <EventSubject event={event} />
      <StatusBadge state={event.state} />
    </>
  );
}

/** A link to what an event is about. */
export function EventSubject({ event }: { readonly event: ClusterEvent }) {
  if (event.type === "node") {
    return (
      <Link className="name" to="/nodes/$id" params={{ id: event.node }}>
        {event.node_name ?? event.node}
      </Link>
    );
  }
  return (
    <Link className="name" to="/jobs/$id" params={{ id: event.job_id }}>
      {event.name ?? event.job_id}
    </Link>
  );
}
