import type { Worker as ClusterNode } from "@heddle/contracts/api/workers";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { nodesQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCount } from "../ui/format.ts";
import { PageHead, Waiting } from "../ui/parts.tsx";
import { RowLink } from "../ui/row-link.tsx";
import { type TableColumn, VirtualTable } from "../ui/virtual-table.tsx";
import { DeviceCells } from "./device-cells.tsx";
import { GPU_FIGURES, type GpuFigure } from "./gpu-figure.ts";

const text = STRINGS.gpus;

/** Every GPU of the cluster as a cell, in the rows of their nodes. */
export function GpusPage() {
  const { heddle } = useSession();
  const { data, error } = useQuery(nodesQuery(heddle));
  const [figure, setFigure] = useState<GpuFigure>("load");
  const columns = useMemo(() => columnsOf(figure), [figure]);
  const rows = useMemo(() => data?.filter(({ gpus }) => gpus.length > 0), [data]);
  return (
    <div className="page page-fill">
      <PageHead title={STRINGS.pages.gpus} />
      <div className="filters">
        <label>
          {text.figure}
          <select
            value={figure}
            onChange={({ target }) =>
              setFigure(GPU_FIGURES.find((each) => each === target.value) ?? "load")
            }
          >
            {GPU_FIGURES.map((each) => (
              <option key={each} value={each}>
                {text.figures[each]}
              </option>
            ))}
          </select>
        </label>
        <span className="muted">{text.legend}</span>
      </div>
      {rows ? (
        <VirtualTable
          label={text.table}
          columns={columns}
          rows={rows}
          keyOf={({ id }) => id}
          empty={text.empty}
        />
      ) : (
        <Waiting error={error} />
      )}
    </div>
  );
}

function columnsOf(figure: GpuFigure): readonly TableColumn<ClusterNode>[] {
  return [
    {
      title: STRINGS.common.name,
      width: "minmax(10rem, 1fr)",
      cell: ({ id, name }) => (
        <RowLink className="row-link" to="/nodes/$id" id={id}>
          {name}
        </RowLink>
      ),
    },
    {
      title: text.held,
      width: "8.5rem",
      isNumber: true,
      cell: ({ jobs, gpus }) =>
        STRINGS.common.of(formatCount(jobs?.gpus_held ?? 0), formatCount(gpus.length)),
    },
    {
      title: text.devices,
      width: "minmax(14rem, 5fr)",
      cell: (node) => <DeviceCells node={node} figure={figure} />,
    },
  ];
}
