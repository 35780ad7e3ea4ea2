import type { ClusterEvent } from "@heddle/contracts/api/events";
import { formatTime } from "./format.ts";
import { RowLink } from "./row-link.tsx";
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
      <RowLink className="name" to="/nodes/$id" id={event.node}>
        {event.node_name ?? event.node}
      </RowLink>
    );
  }
  return (
    <RowLink className="name" to="/jobs/$id" id={event.job_id}>
      {event.name ?? event.job_id}
    </RowLink>
  );
}

/** Why it happened; a list may cut the text, of which the whole one is the title. */
export function EventReason({ event }: { readonly event: ClusterEvent }) {
  const reason = (event.type === "job" && event.failure?.message) || (event.why ?? "");
  return <span title={reason}>{reason}</span>;
}
