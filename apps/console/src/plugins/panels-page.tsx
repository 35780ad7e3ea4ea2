import type { PanelCell, PanelPart } from "@heddle/contracts/api/plugins/panels";
import { useQuery } from "@tanstack/react-query";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { formatCompact } from "../ui/format.ts";
import { Card, Facts, PageHead, PlainTable, Waiting } from "../ui/parts.tsx";
import { Series } from "../ui/series.ts";
import { SeriesChart } from "../ui/series-chart.tsx";
import { type PluginPanel, usePanels } from "./use-panels.ts";

const REFRESH_MS = 5_000;

/** The panels of the plugins of the master that serves this page. */
export function PanelsPage() {
  const panels = usePanels();
  return (
    <div className="page">
      <PageHead title={STRINGS.pages.panels} />
      {panels.length === 0 && <p className="muted">{STRINGS.panels.none}</p>}
      {panels.map((panel) => (
        <PanelCard key={`${panel.plugin} ${panel.name}`} panel={panel} />
      ))}
    </div>
  );
}

function PanelCard({ panel: { plugin, name, title } }: { readonly panel: PluginPanel }) {
  const { heddle } = useSession();
  const { data, error } = useQuery({
    queryKey: ["panel", plugin, name],
    queryFn: ({ signal }) => heddle.plugins.panel(plugin, name, { signal }),
    refetchInterval: REFRESH_MS,
  });
  return (
    <Card title={title}>
      <p className="muted">{STRINGS.panels.of(plugin)}</p>
      {(!data || error) && <Waiting error={error} />}
      {[...(data?.parts.entries() ?? [])].map(([at, part]) => (
        <Part key={at} part={part} />
      ))}
    </Card>
  );
}

function Part({ part }: { readonly part: PanelPart }) {
  if (part.kind === "text") return <p className="said">{part.text}</p>;
  if (part.kind === "facts") {
    return <Facts rows={part.rows.map(([name, value]) => [name, textOf(value)])} />;
  }
  if (part.kind === "series") {
    const series = Series.of(part.points.map(([x, y]) => ({ x, y })));
    return <SeriesChart label={part.label} series={series} format={formatCompact} />;
  }
  const rows = part.rows.map((cells, at) => ({ key: String(at), cells: cells.map(textOf) }));
  return <PlainTable label={part.label} head={part.columns} rows={rows} />;
}

function textOf(cell: PanelCell): string {
  return typeof cell === "number" ? formatCompact(cell) : (cell ?? "");
}
