import type { Worker as ClusterNode } from "@heddle/contracts/api/workers";
import { useQuery } from "@tanstack/react-query";
import { nodesQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatBytes, formatCount, formatPercent } from "../ui/format.ts";
import { Meter, PageHead, Waiting } from "../ui/parts.tsx";
import { RowLink } from "../ui/row-link.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";
import { type TableColumn, VirtualTable } from "../ui/virtual-table.tsx";

const COLUMNS: readonly TableColumn<ClusterNode>[] = [
  {
    title: STRINGS.common.name,
    width: "minmax(10rem, 2fr)",
    cell: ({ id, name }) => (
      <RowLink className="row-link" to="/nodes/$id" id={id}>
        {name}
      </RowLink>
    ),
  },
  { title: STRINGS.common.kind, width: "minmax(8rem, 1fr)", cell: ({ kind }) => kind },
  {
    title: STRINGS.nodes.status,
    width: "minmax(7rem, 1fr)",
    cell: ({ status, jobs }) => (
      <StatusBadge state={jobs && jobs.state !== "ready" ? jobs.state : status} />
    ),
  },
  {
    title: STRINGS.nodes.gpus,
    width: "minmax(6rem, 1fr)",
    isNumber: true,
    cell: ({ jobs, gpus }) =>
      jobs && jobs.gpus > 0
        ? STRINGS.common.of(formatCount(jobs.gpus_held), formatCount(jobs.gpus))
        : formatCount(gpus.length),
  },
  {
    title: STRINGS.nodes.cpu,
    width: "minmax(9rem, 1fr)",
    cell: ({ cpu_percent }) =>
      cpu_percent === null ? (
        STRINGS.common.unknown
      ) : (
        <Meter share={cpu_percent / 100} text={formatPercent(cpu_percent)} />
      ),
  },
  {
    title: STRINGS.nodes.memory,
    width: "minmax(15.5rem, 1.5fr)",
    cell: ({ memory_bytes, memory_used_bytes }) =>
      memory_bytes === null || memory_used_bytes === null ? (
        STRINGS.common.unknown
      ) : (
        <Meter
          share={memory_used_bytes / memory_bytes}
          text={STRINGS.common.of(formatBytes(memory_used_bytes), formatBytes(memory_bytes))}
        />
      ),
  },
  {
    title: STRINGS.nodes.tasks,
    width: "minmax(5rem, 0.6fr)",
    isNumber: true,
    cell: ({ jobs }) => formatCount(jobs?.tasks.length ?? 0),
  },
  {
    title: STRINGS.nodes.replicas,
    width: "minmax(6.5rem, 0.6fr)",
    isNumber: true,
    cell: ({ replicas }) => formatCount(replicas.length),
  },
];

/** All nodes, in the order of their names. */
export function NodesPage() {
  const { heddle } = useSession();
  const { data: rows, error } = useQuery(nodesQuery(heddle));
  return (
    <div className="page page-fill">
      <PageHead title={STRINGS.pages.nodes} />
      {rows ? (
        <VirtualTable
          label={STRINGS.nodes.table}
          columns={COLUMNS}
          rows={rows}
          keyOf={({ id }) => id}
          empty={STRINGS.nodes.empty}
        />
      ) : (
        <Waiting error={error} />
      )}
    </div>
  );
}
