import type { JobEvent } from "@heddle/contracts/api/events";
import { useQuery } from "@tanstack/react-query";
import { jobEventsQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { EventReason } from "../ui/event-line.tsx";
import { formatCount, formatTime } from "../ui/format.ts";
import { Waiting } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { type TableColumn, VirtualTable } from "../ui/virtual-table.tsx";

const COLUMNS: readonly TableColumn<JobEvent>[] = [
  {
    title: STRINGS.common.time,
    width: "minmax(13rem, 1fr)",
    cell: ({ at }) => <time dateTime={at}>{formatTime(at)}</time>,
  },
  {
    title: STRINGS.common.state,
    width: "minmax(8rem, 1fr)",
    cell: ({ state }) => <StatusBadge state={state} />,
  },
  {
    title: STRINGS.jobs.attempt,
    width: "6.5rem",
    isNumber: true,
    cell: ({ attempt }) => formatCount(attempt),
  },
  {
    title: STRINGS.jobs.reason,
    width: "minmax(16rem, 3fr)",
    cell: (event) => <EventReason event={event} />,
  },
];

/** The events of one job, the oldest first. */
export function JobEvents({ id }: { readonly id: string }) {
  const { heddle } = useSession();
  const { data, error } = useQuery(jobEventsQuery(heddle, id));
  const rows = data?.data.filter((event) => event.type === "job");
  if (!rows) return <Waiting error={error} />;
  return (
    <VirtualTable
      label={STRINGS.jobs.tabs.events}
      columns={COLUMNS}
      rows={rows}
      keyOf={(event) => event.id}
      empty={STRINGS.jobs.eventsEmpty}
    />
  );
}
