import type { Heddle } from "@heddle/client/heddle";
import type { ClusterEvent } from "@heddle/contracts/api/events";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useLiveEvents } from "../data/live-events.ts";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { EventReason, EventSubject } from "../ui/event-line.tsx";
import { formatCount, formatTime } from "../ui/format.ts";
import { PageHead, Waiting } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { type TableColumn, VirtualTable } from "../ui/virtual-table.tsx";
import { LogEvents } from "./event-log.tsx";
import { KeptEvents } from "./events-shown.ts";

const text = STRINGS.eventsPage;
const PAGE_EVENTS = 1_000;
/** The latest of them are shown. */
const MAX_EVENTS = 50_000;

const COLUMNS: readonly TableColumn<ClusterEvent>[] = [
  {
    title: STRINGS.common.time,
    width: "minmax(13rem, 1fr)",
    cell: ({ at }) => <time dateTime={at}>{formatTime(at)}</time>,
  },
  { title: STRINGS.common.kind, width: "5rem", cell: ({ type }) => type },
  {
    title: STRINGS.common.name,
    width: "minmax(12rem, 2fr)",
    cell: (event) => <EventSubject event={event} />,
  },
  {
    title: STRINGS.common.state,
    width: "minmax(8rem, 1fr)",
    cell: ({ state }) => <StatusBadge state={state} />,
  },
  {
    title: STRINGS.jobs.reason,
    width: "minmax(16rem, 3fr)",
    cell: (event) => <EventReason event={event} />,
  },
  {
    title: text.position,
    width: "minmax(6rem, 0.7fr)",
    isNumber: true,
    cell: ({ id }) => id,
  },
];

const PARTS = ["recent", "log"] as const;

/** What happens to jobs and nodes, and the log of all changes with its proofs. */
export function EventsPage() {
  const { part: asked } = useSearch({ from: "/events" });
  const mayReadLog = useMay("events:read");
  return (
    <div className="page page-fill">
      <PageHead title={STRINGS.pages.events} />
      {mayReadLog && (
        <nav className="parts" aria-label={text.sections}>
          {PARTS.map((part) => (
            <Link
              key={part}
              to="/events"
              search={{ part: part === "recent" ? undefined : part }}
              activeOptions={{ exact: true, includeSearch: true }}
            >
              {text.parts[part]}
            </Link>
          ))}
        </nav>
      )}
      {mayReadLog && asked === "log" ? <LogEvents /> : <RecentEvents />}
    </div>
  );
}

/** Every kept event, the newest first, with those that happen meanwhile. */
function RecentEvents() {
  const { heddle } = useSession();
  const [wanted, setWanted] = useState("");
  const { data, error } = useQuery({
    queryKey: ["events"],
    queryFn: ({ signal }) => keptEvents(heddle, signal),
    staleTime: Infinity,
  });
  const live = useLiveEvents();
  const kept = useMemo(() => data && new KeptEvents(data, wanted), [data, wanted]);
  const rows = useMemo(() => kept?.withLive(live), [kept, live]);
  if (!rows) return <Waiting error={error} />;
  return (
    <>
      <div className="filters">
        <label>
          {text.filter}
          <input value={wanted} onChange={({ target }) => setWanted(target.value)} />
        </label>
        <span className="muted">{text.count(formatCount(rows.length))}</span>
      </div>
      <VirtualTable
        label={text.table}
        columns={COLUMNS}
        rows={rows}
        keyOf={({ id }) => id}
        empty={text.empty}
      />
    </>
  );
}

/** All that the cluster keeps, oldest first; of very many the latest. */
async function keptEvents(heddle: Heddle, signal: AbortSignal): Promise<readonly ClusterEvent[]> {
  let events: ClusterEvent[] = [];
  let after = "0.0";
  for (;;) {
    const page = await heddle.events.list({ after, limit: PAGE_EVENTS, signal });
    events = [...events, ...page.data].slice(-MAX_EVENTS);
    if (page.data.length < PAGE_EVENTS || page.last_event_id === null) return events;
    after = page.last_event_id;
  }
}
